//! Dead letters in Prefect's layout: a hash for each, and a set that names them.
//!
//! What must stay true: the same letter always has the same key, so that writing it again after a reply was lost changes
//! nothing; and two letters never share one, so that none is overwritten.

use std::fmt::Write as _;

use stream_core::{DeadLetter, StreamKey};

use super::{Fenced, Owner, owner_args, plain};
use crate::command::{Script, decode};
use crate::{Connection, Error, Request};

impl Fenced {
    /// Writes the letter as a hash, names it in the set `set` and acknowledges its entry, in one step; returns false where
    /// the entry is lost and nothing was written. The hash's key is that of the set, a colon and 32 hexadecimal digits.
    ///
    /// Without scripts, and where the keys lie in several slots of a cluster, the commands are separate: a failure between
    /// them leaves the entry pending, never a loss.
    ///
    /// # Errors
    /// Of the connection or the server. The entry is acknowledged only after the dead letter was written.
    pub async fn dead_letter_hash(
        &self,
        connection: &dyn Connection,
        owner: &Owner,
        set: &StreamKey,
        letter: &DeadLetter,
    ) -> Result<bool, Error> {
        let id = letter.entry.id();
        let name = name(letter);
        // A name with something after it is not empty.
        let hash = StreamKey::new([set.as_bytes(), b":", name.as_bytes()].concat()).unwrap_or_else(|_| set.clone());
        let fields = letter.to_hash(&name);
        let with_fields = |mut request: Request| {
            for (name, value) in &fields {
                request.push(name);
                request.push(value);
            }
            request
        };
        let args = |request| with_fields(owner_args(request, owner).id(id));
        let written = |value| decode::count(&value);
        let keys = [&owner.key, set, &hash];
        match self.script(connection, Script::dead_letter_hash(), &keys, args, written).await {
            Ok(Some(written)) => return Ok(written > 0),
            Ok(None) => {}
            Err(error) if error.code() == Some("CROSSSLOT") => {}
            Err(error) => return Err(error),
        }
        // A member without a hash would look like a letter that somebody is about to delete.
        let writes = [with_fields(Request::new("HSET").key(&hash)), Request::new("SADD").key(set).arg(&hash)];
        plain::dead_letter_hash(connection, owner, id, &writes).await
    }
}

/// The first 128 bits of the digest of everything that the letter says.
fn name(letter: &DeadLetter) -> String {
    let mut digest = sha1_smol::Sha1::new();
    for (name, value) in letter.to_hash("") {
        digest.update(&name);
        digest.update(&value);
    }
    let bytes = digest.digest().bytes();
    bytes[..16].iter().fold(String::with_capacity(32), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
