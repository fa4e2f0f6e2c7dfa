//! The reading socket.
