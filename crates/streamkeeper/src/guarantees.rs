//! The guarantees as documentation: the text is a file of its own.
#![doc = include_str!("docs/guarantees.md")]
