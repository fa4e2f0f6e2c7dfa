//! What fuzz targets see of the inside. Only a build with `--cfg fuzzing` has it, and nobody but `fuzz/` may rely on it.

pub use crate::cluster::fuzzing as cluster;
pub use crate::sentinel::fuzzing as sentinel;

use crate::Value;

/// Reads one value of the greeting: the value and its length, `None` while it is incomplete, or the byte that cannot be there.
pub fn resp(buffer: &[u8]) -> Result<Option<(Value, usize)>, u8> {
    crate::greeting::reply::parse(buffer).map_err(|refused| refused.0)
}
