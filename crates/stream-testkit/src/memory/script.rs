//! Which scripts the model knows. It carries them out natively, by name; it does not run Lua.

use stream_redis::command::Script;

/// A script of the library.
pub(super) type Known = &'static Script;

/// The script with this hash, or this source.
pub(super) fn find(by_hash: bool, text: &[u8]) -> Option<Known> {
    if by_hash { Script::by_sha(text) } else { Script::by_source(text) }
}

/// The hash of a script, by which it can be called after it was loaded.
pub(super) fn hash(script: Known) -> String {
    script.sha().to_owned()
}
