//! Makes replies comparable: what hangs on the wall clock or on a server's innards is taken out, as little as possible.

use stream_core::EntryId;
use stream_redis::command::Script;
use stream_redis::{ServerError, Value};

/// Older than this is "long ago": the sequences use either no age at all or an hour.
const LONG_AGO: i64 = 1_800_000;

/// Fields of `XINFO` that the model has, too.
const KNOWN_FIELDS: [&str; 15] = [
    "name",
    "consumers",
    "pending",
    "last-delivered-id",
    "entries-read",
    "lag",
    "idle",
    "inactive",
    "length",
    "last-generated-id",
    "max-deleted-entry-id",
    "entries-added",
    "recorded-first-entry-id",
    "groups",
    "first-entry",
];

/// The reply as text, without what may differ.
pub(crate) fn normalise(args: &[Vec<u8>], reply: Result<Value, ServerError>) -> String {
    let command = args[0].to_ascii_uppercase();
    match reply {
        Err(error) => format!("-{error}"),
        Ok(value) => match command.as_slice() {
            b"XPENDING" if args.len() > 3 => text(&rows(value)),
            b"XINFO" => text(&fields(value)),
            b"HGETALL" | b"SSCAN" => text(&sorted(value)),
            b"EVAL" | b"EVALSHA" if is_new_id(&value) => "an id of now".to_owned(),
            b"GET" => marker(&value),
            _ => text(&value),
        },
    }
}

/// The value of a marker begins with the id of what was published.
fn marker(value: &Value) -> String {
    let held = text(value);
    match held.trim_matches('"').split_once(' ') {
        Some((id, asker)) if is_new_id(&Value::bulk(id)) => format!("an id of now {asker}"),
        _ => held,
    }
}

/// An id from the clock; those of the sequences are small.
fn is_new_id(value: &Value) -> bool {
    let id = value.as_bytes().and_then(|id| EntryId::parse(id).ok());
    id.is_some_and(|id| id.ms() > 1_000_000_000_000)
}

/// Hashes and sets have no order.
fn sorted(value: Value) -> Value {
    match value {
        Value::Map(mut pairs) => {
            pairs.sort_by_key(|(name, _)| text(name));
            Value::Map(pairs)
        }
        Value::Array(values) => {
            let mut values: Vec<Value> = values.into_iter().map(sorted).collect();
            values.sort_by_key(text);
            Value::Array(values)
        }
        value => value,
    }
}

/// A command as one would type it.
pub(crate) fn show(args: &[Vec<u8>]) -> String {
    let word = |arg: &Vec<u8>| match Script::by_source(arg) {
        Some(script) => script.name().to_owned(),
        None => String::from_utf8_lossy(arg).into_owned(),
    };
    args.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// Pending rows: the third column is an age.
fn rows(value: Value) -> Value {
    let Value::Array(rows) = value else { return value };
    let row = |row| match row {
        Value::Array(mut columns) if columns.len() == 4 => {
            columns[2] = age(&columns[2]);
            Value::Array(columns)
        }
        row => row,
    };
    Value::Array(rows.into_iter().map(row).collect())
}

/// Maps of `XINFO`: ages made coarse, unknown fields dropped.
fn fields(value: Value) -> Value {
    match value {
        Value::Array(maps) => Value::Array(maps.into_iter().map(fields).collect()),
        Value::Map(pairs) => Value::Map(pairs.into_iter().filter_map(field).collect()),
        value => value,
    }
}

fn field((name, value): (Value, Value)) -> Option<(Value, Value)> {
    let text = String::from_utf8_lossy(name.as_bytes()?).into_owned();
    if !KNOWN_FIELDS.contains(&text.as_str()) && text != "last-entry" {
        return None;
    }
    let value = if text == "idle" || text == "inactive" { age(&value) } else { value };
    Some((name, value))
}

fn age(value: &Value) -> Value {
    match value.as_int() {
        Some(..0) => Value::bulk("never"),
        Some(..LONG_AGO) => Value::bulk("just now"),
        Some(_) => Value::bulk("long ago"),
        None => value.clone(),
    }
}

fn text(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(text).collect::<Vec<_>>().join(", ");
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Bulk(bytes) => format!("{:?}", String::from_utf8_lossy(bytes)),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(name, value)| format!("{}: {}", text(name), text(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        other => format!("{other:?}"),
    }
}
