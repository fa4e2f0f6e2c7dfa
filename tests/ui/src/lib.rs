//! What the compiler says to who writes a handler that does not fit. A package of its own because its cases are compiled
//! with all dependencies anew: here these are few.
