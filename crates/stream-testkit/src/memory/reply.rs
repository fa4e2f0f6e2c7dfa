//! Replies and the exact texts of error replies.

use bytes::Bytes;
use stream_core::EntryId;
use stream_redis::{ServerError, Value};

use super::profile::Profile;

/// What a command answers.
pub(super) type Reply = Result<Value, ServerError>;

pub(super) fn ok() -> Value {
    Value::bulk("OK")
}

pub(super) fn id_value(id: EntryId) -> Value {
    Value::bulk(id.to_string())
}

pub(super) fn count(number: usize) -> Value {
    Value::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

/// `[id, [field, value, …]]`, or `[id, nil]` for an entry that is gone.
pub(super) fn entry_value(id: EntryId, fields: Option<&[Bytes]>) -> Value {
    let fields = match fields {
        Some(fields) => Value::Array(fields.iter().cloned().map(Value::Bulk).collect()),
        None => Value::Nil,
    };
    Value::Array(vec![id_value(id), fields])
}

pub(super) fn error(line: &str) -> ServerError {
    ServerError::parse(line)
}

pub(super) fn syntax() -> ServerError {
    error("ERR syntax error")
}

pub(super) fn not_an_integer() -> ServerError {
    error("ERR value is not an integer or out of range")
}

pub(super) fn invalid_id() -> ServerError {
    error("ERR Invalid stream ID specified as stream command argument")
}

pub(super) fn wrong_type() -> ServerError {
    error("WRONGTYPE Operation against a key holding the wrong kind of value")
}

pub(super) fn no_such_key() -> ServerError {
    error("ERR no such key")
}

pub(super) fn no_key_or_group(key: &[u8], group: &[u8]) -> ServerError {
    error(&format!("NOGROUP No such key '{}' or consumer group '{}'", text(key), text(group)))
}

pub(super) fn no_group_to_read(key: &[u8], group: &[u8]) -> ServerError {
    let (key, group) = (text(key), text(group));
    error(&format!("NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP option"))
}

pub(super) fn no_group_in_stream(key: &[u8], group: &[u8]) -> ServerError {
    error(&format!("NOGROUP No such consumer group '{}' for key name '{}'", text(group), text(key)))
}

pub(super) fn key_required() -> ServerError {
    error(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
         option to create an empty stream automatically.",
    )
}

/// `name` as the server calls the command, for example `xadd` or `xgroup|create`.
pub(super) fn arity(name: &str) -> ServerError {
    error(&format!("ERR wrong number of arguments for '{name}' command"))
}

pub(super) fn unknown_command(args: &[Bytes], profile: Profile) -> ServerError {
    let name = text(args.first().map_or(&[][..], |name| name));
    let mut line = match profile {
        Profile::Redis62 => format!("ERR unknown command `{name}`, with args beginning with: "),
        _ => format!("ERR unknown command '{name}', with args beginning with: "),
    };
    let (before, after) = if profile == Profile::Redis62 { ("`", "`, ") } else { ("'", "' ") };
    for arg in args.iter().skip(1) {
        line.push_str(before);
        line.push_str(&text(arg));
        line.push_str(after);
    }
    error(&line)
}

/// A subcommand that does not exist, or has options it does not know.
pub(super) fn subcommand_syntax(command: &str, subcommand: &[u8], profile: Profile) -> ServerError {
    let subcommand = text(subcommand);
    let unknown = if profile == Profile::Redis62 { "Unknown" } else { "unknown" };
    let tail = format!("Try {command} HELP.");
    error(&format!("ERR {unknown} subcommand or wrong number of arguments for '{subcommand}'. {tail}"))
}

/// The access control list forbids `name`.
pub(super) fn no_permission(name: &str, profile: Profile) -> ServerError {
    error(&match profile {
        Profile::Redis62 => {
            let name = name.split('|').next().unwrap_or(name);
            format!("NOPERM this user has no permissions to run the '{name}' command or its subcommand")
        }
        Profile::Redis70 => format!("NOPERM this user has no permissions to run the '{name}' command"),
        _ => format!("NOPERM User default has no permissions to run the '{name}' command"),
    })
}

/// The same for a command that a script calls. Redis 6.2 puts a line number there, which says nothing here.
pub(super) fn no_permission_in_script(name: &str, profile: Profile) -> ServerError {
    error(&match profile {
        Profile::Redis62 => {
            "@user_script: 1: The user executing the script can't run this command or subcommand".to_owned()
        }
        Profile::Redis70 => "ERR The user executing the script can't run this command or subcommand".to_owned(),
        _ => format!("ERR ACL failure in script: User default has no permissions to run the '{name}' command"),
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
