//! The Lua scripts that make a check of ownership and what follows from it one atomic step.
//!
//! What must stay true: all keys are declared (`KEYS[1]` is the stream, and only scripts that write elsewhere have more),
//! every command inside is one of Redis 6.2, and an error of a command inside arrives under its own code. An in-memory
//! server recognises the scripts by [`Script::by_sha`] and [`Script::by_source`] and runs a version of its own.

use std::sync::LazyLock;

use stream_core::StreamKey;

use crate::{Connection, Error, ErrorKind, Request, ServerError, Value};

/// One of the library's Lua scripts.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    /// How errors name it.
    label: &'static str,
    source: &'static str,
    sha: String,
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $index:literal $name:ident),+ $(,)?) => {
        static ALL: LazyLock<Vec<Script>> = LazyLock::new(|| vec![$({
            let source = concat!(
                include_str!("scripts/head.lua"),
                include_str!(concat!("scripts/", stringify!($name), ".lua"))
            );
            Script {
                name: stringify!($name),
                label: concat!("EVALSHA ", stringify!($name)),
                source,
                sha: sha1_smol::Sha1::from(source).digest().to_string(),
            }
        }),+]);

        impl Script {
            $(
                $(#[$doc])*
                pub fn $name() -> &'static Self {
                    &ALL[$index]
                }
            )+
        }
    };
}

scripts! {
    /// `group consumer id…` (ascending): starts the lease of owned entries anew; returns the ids that are lost.
    0 renew,
    /// `group consumer idle-ms (id count)…`: gives owned entries back; returns how many.
    1 hand_back,
    /// `group consumer bodies (id count)…`: counts the start of handlers; returns for each pair 0 (lost), -1 (deleted
    /// from the stream, not pending any more), 1 (counted) or, where `bodies` is `1`, the entry.
    2 take,
    /// `group consumer id…`: acknowledges owned entries; returns the ids that are lost.
    3 acknowledge,
    /// `group consumer id max-len (name value)…` with the dead letter stream as second key: returns the id of the dead
    /// letter, or nil where the entry is lost.
    4 dead_letter,
    /// `group consumer`: removes the consumer if it holds nothing; returns 1 where it was removed, else 0.
    5 remove_consumer,
    /// `group last-delivered-id`: destroys the group if it has no consumers, nothing pending and was delivered this id
    /// last; returns 1 where it was destroyed, else 0.
    6 destroy_group,
    /// `group consumer id (name value)…` with the set of dead letters and the letter's own hash as second and third key:
    /// returns 1 where the letter was written, 0 where the entry is lost.
    7 dead_letter_hash,
    /// `group consumer id…`: like `acknowledge`, and deletes the entries if the stream has no other group.
    8 acknowledge_delete,
    /// `seconds asker XADD-argument…` with the marker as second key: appends an entry that was not appended before; returns
    /// its id, or nil where somebody else had set the marker.
    9 publish_once,
}

impl Script {
    /// All of them.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// The script with this SHA-1 in hexadecimal, as `EVALSHA` names it.
    pub fn by_sha(sha: impl AsRef<[u8]>) -> Option<&'static Self> {
        ALL.iter().find(|script| script.sha.as_bytes().eq_ignore_ascii_case(sha.as_ref()))
    }

    /// The script with this source, as `EVAL` and `SCRIPT LOAD` bring it.
    pub fn by_source(source: impl AsRef<[u8]>) -> Option<&'static Self> {
        ALL.iter().find(|script| script.source.as_bytes() == source.as_ref())
    }

    /// Its name, for example `renew`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The Lua source.
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// SHA-1 of the source in lower case hexadecimal.
    pub fn sha(&self) -> &str {
        &self.sha
    }

    /// Runs the script: by its SHA-1, and with its source where the server has not cached it.
    pub(crate) async fn run(
        &self,
        connection: &dyn Connection,
        keys: &[&StreamKey],
        args: impl Fn(Request) -> Request + Send,
    ) -> Result<Value, Error> {
        let name = |error: Error| match error.server() {
            Some(server) => Error::from_server(inner(server)).at(self.label, keys.first().copied()),
            None => error.at(self.label, keys.first().copied()),
        };
        let request = args(encode("EVALSHA", &self.sha, keys));
        match connection.call(&request).await {
            Err(error) if error.kind() == ErrorKind::NoScript => {
                let request = args(encode("EVAL", self.source, keys));
                connection.call(&request).await.map_err(name)
            }
            result => result.map_err(name),
        }
    }

    /// How errors name the script.
    pub(crate) fn label(&self) -> &'static str {
        self.label
    }
}

/// The error of a command inside a script under the code it has outside of one: a missing permission comes without.
pub(crate) fn inner(error: &ServerError) -> ServerError {
    let mut error = error.clone();
    let refusals = ["ACL failure in script", "The user executing the script can't"];
    if error.code == "ERR" && refusals.iter().any(|refusal| error.detail.starts_with(refusal)) {
        "NOPERM".clone_into(&mut error.code);
    }
    error
}

impl Script {
    /// A call by the SHA-1, to be completed with arguments and sent among other commands.
    pub(crate) fn call(&self, keys: &[&StreamKey]) -> Request {
        encode("EVALSHA", &self.sha, keys)
    }

    /// The command that makes the server know the script.
    pub(crate) fn load(&self) -> Request {
        Request::new("SCRIPT LOAD").arg(self.source)
    }
}

fn encode(command: &'static str, body: &str, keys: &[&StreamKey]) -> Request {
    keys.iter().fold(Request::new(command).arg(body).int(keys.len()), |request, key| request.key(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_found_by_sha_and_by_source() {
        assert_eq!(Script::all().len(), 10);
        for script in Script::all() {
            assert!(std::ptr::eq(Script::by_sha(script.sha()).unwrap(), script));
            assert!(std::ptr::eq(Script::by_sha(script.sha().to_uppercase()).unwrap(), script));
            assert!(std::ptr::eq(Script::by_source(script.source()).unwrap(), script));
        }
        assert!(Script::by_sha("").is_none());
        assert!(Script::by_source("return 1").is_none());
    }

    #[test]
    fn errors_inside_scripts_get_their_own_code_back() {
        let check = |line: &str, expected: &str| assert_eq!(inner(&ServerError::parse(line)).to_string(), expected);
        check("@user_script: 30: -OOM command not allowed: x", "OOM command not allowed: x");
        check("@user_script: 1: Unknown Redis command", "ERR Unknown Redis command");
        let refusal = "The user executing the script can't run this command or subcommand";
        check(&format!("@user_script: 37: {refusal}"), &format!("NOPERM {refusal}"));
        check(&format!("ERR {refusal}"), &format!("NOPERM {refusal}"));
        let refusal = "ACL failure in script: User half has no permissions to run the 'xclaim' command";
        check(&format!("ERR {refusal}"), &format!("NOPERM {refusal}"));
        check("NOGROUP No such key 's'", "NOGROUP No such key 's'");
        check("@user_script:", "@user_script: ");
    }

    #[test]
    fn each_name_leads_to_its_own_source() {
        let all = [
            Script::renew(),
            Script::hand_back(),
            Script::take(),
            Script::acknowledge(),
            Script::dead_letter(),
            Script::remove_consumer(),
            Script::destroy_group(),
            Script::dead_letter_hash(),
            Script::acknowledge_delete(),
            Script::publish_once(),
        ];
        let names = all.map(Script::name);
        let expected = [
            "renew",
            "hand_back",
            "take",
            "acknowledge",
            "dead_letter",
            "remove_consumer",
            "destroy_group",
            "dead_letter_hash",
            "acknowledge_delete",
            "publish_once",
        ];
        assert_eq!(names, expected);
    }
}
