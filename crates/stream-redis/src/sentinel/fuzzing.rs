//! What sentinels say, for fuzz targets.

use super::{answers, switches};
use crate::{Error, Value};

/// The servers to try, by what some sentinels answered.
pub fn candidates(master: &str, replies: &[Vec<Value>]) -> Result<Vec<(String, u16)>, Error> {
    answers::candidates(master, replies.iter().map(|replies| answers::read(replies)).collect())
}

/// The master that a sentinel tells of to whoever listens.
pub fn switched(said: &Value, master: &str) -> Result<Option<(String, u16)>, Error> {
    switches::switched(said, master)
}
