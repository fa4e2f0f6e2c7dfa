//! Maintenance in processes of its own and beside consumers, on every server of the matrix.

mod afterwards;
mod beside;
mod cleaning;
mod huge;
mod redrive;
