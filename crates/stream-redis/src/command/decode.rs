//! Reading parts of replies: numbers, ids, entries and the name-value lists of `XINFO`.
//!
//! What must stay true: no error made here holds a byte of a reply, only types and lengths.

use std::fmt::Write as _;

use stream_core::{Entry, EntryId};

use crate::{Error, ErrorKind, Value};

/// How deep and how wide [`shape`] looks before it says `…`.
const DEPTH: usize = 4;
const WIDTH: usize = 4;

/// The reply is not what `expected` says.
pub(crate) fn unexpected(expected: &str, value: &Value) -> Error {
    Error::new(ErrorKind::Protocol, format!("unexpected reply: expected {expected}, got {}", shape(value)))
}

/// Types and lengths of a reply, without its payload.
pub(crate) fn shape(value: &Value) -> String {
    let mut out = String::new();
    write_shape(value, DEPTH, &mut out);
    out
}

fn write_shape(value: &Value, depth: usize, out: &mut String) {
    let list = |parts: &[&Value], length: usize, out: &mut String| {
        for (index, part) in parts.iter().enumerate() {
            if depth == 0 || index == WIDTH {
                let _ = write!(out, "… {length} in all");
                break;
            }
            if index > 0 {
                out.push_str(", ");
            }
            write_shape(part, depth - 1, out);
        }
    };
    match value {
        Value::Nil => out.push_str("nil"),
        Value::Int(_) => out.push_str("int"),
        Value::Double(_) => out.push_str("double"),
        Value::Bool(_) => out.push_str("bool"),
        Value::Bulk(bytes) => {
            let _ = write!(out, "text({})", bytes.len());
        }
        Value::Error(error) => {
            let _ = write!(out, "error({})", error.code);
        }
        Value::Array(values) => {
            out.push('[');
            list(&values.iter().take(WIDTH + 1).collect::<Vec<_>>(), values.len(), out);
            out.push(']');
        }
        Value::Map(pairs) => {
            out.push('{');
            let parts: Vec<_> = pairs.iter().take(WIDTH).flat_map(|(name, value)| [name, value]).collect();
            list(&parts, pairs.len(), out);
            out.push('}');
        }
    }
}

/// An integer of the reply.
pub(crate) fn int(value: &Value) -> Result<i64, Error> {
    value.as_int().ok_or_else(|| unexpected("an integer", value))
}

/// An integer of the reply that cannot be negative.
pub(crate) fn count(value: &Value) -> Result<u64, Error> {
    value
        .as_int()
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| unexpected("an integer that is not negative", value))
}

/// An entry id.
pub(crate) fn id(value: &Value) -> Result<EntryId, Error> {
    value.as_bytes().and_then(|text| EntryId::parse(text).ok()).ok_or_else(|| unexpected("an entry id", value))
}

/// An entry id or nothing.
pub(crate) fn optional_id(value: &Value) -> Result<Option<EntryId>, Error> {
    match value {
        Value::Nil => Ok(None),
        value => id(value).map(Some),
    }
}

/// The elements of an array.
pub(crate) fn array(value: Value) -> Result<Vec<Value>, Error> {
    match value {
        Value::Array(values) => Ok(values),
        value => Err(unexpected("an array", &value)),
    }
}

/// Ids of an array.
pub(crate) fn ids(value: Value) -> Result<Vec<EntryId>, Error> {
    array(value)?.iter().map(id).collect()
}

/// `OK`, of a command that says nothing else.
pub(crate) fn ok(value: &Value) -> Result<(), Error> {
    match value.as_bytes() {
        Some(b"OK") => Ok(()),
        _ => Err(unexpected("OK", value)),
    }
}

/// What a list of entries held.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// Ids with nothing behind them (`[id, nil]`).
    pub(crate) deleted: Vec<EntryId>,
    /// Elements that are nil altogether, as Redis 6.2 sends for deleted entries.
    pub(crate) holes: usize,
}

/// A list of entries; nil instead of the list is the same as none.
pub(crate) fn entries(value: Value) -> Result<Listing, Error> {
    let mut out = Listing::default();
    let values = match value {
        Value::Nil => return Ok(out),
        value => array(value)?,
    };
    out.entries.reserve(values.len());
    for value in values {
        match value {
            Value::Nil => out.holes += 1,
            value => match entry(value)? {
                (_, Some(entry)) => out.entries.push(entry),
                (id, None) => out.deleted.push(id),
            },
        }
    }
    Ok(out)
}

/// One entry `[id, fields, …]`; no entry where the fields are nil.
pub(crate) fn entry(value: Value) -> Result<(EntryId, Option<Entry>), Error> {
    let parts = match value {
        Value::Array(parts) if parts.len() >= 2 => parts,
        value => return Err(unexpected("an entry", &value)),
    };
    let id = id(&parts[0])?;
    let entry = match &parts[1] {
        Value::Nil => return Ok((id, None)),
        Value::Array(flat) if flat.len().is_multiple_of(2) => {
            let mut fields = Vec::with_capacity(flat.len() / 2);
            for pair in flat.chunks_exact(2) {
                fields.push(field(&pair[0], &pair[1])?);
            }
            Entry::new(id, fields)
        }
        Value::Map(pairs) => {
            let fields: Result<Vec<_>, _> = pairs.iter().map(|(name, value)| field(name, value)).collect();
            Entry::new(id, fields?)
        }
        value => return Err(unexpected("the fields of an entry", value)),
    };
    let entry = entry.map_err(|error| Error::new(ErrorKind::Protocol, "an entry is too large").with_source(error))?;
    Ok((id, Some(entry)))
}

fn field<'a>(name: &'a Value, value: &'a Value) -> Result<(&'a [u8], &'a [u8]), Error> {
    match (name.as_bytes(), value.as_bytes()) {
        (Some(name), Some(value)) => Ok((name, value)),
        (None, _) => Err(unexpected("the name of a field", name)),
        _ => Err(unexpected("the value of a field", value)),
    }
}

/// The name-value list of an `XINFO` reply, from a map or from a flat array.
pub(crate) struct Info(Vec<(Value, Value)>);

impl Info {
    pub(crate) fn new(value: Value) -> Result<Self, Error> {
        match value {
            Value::Map(pairs) => Ok(Self(pairs)),
            Value::Array(values) if values.len().is_multiple_of(2) => {
                let mut pairs = Vec::with_capacity(values.len() / 2);
                let mut values = values.into_iter();
                while let (Some(name), Some(value)) = (values.next(), values.next()) {
                    pairs.push((name, value));
                }
                Ok(Self(pairs))
            }
            value => Err(unexpected("names and values", &value)),
        }
    }

    /// The value called `name`; `None` where the server does not have it or says nil.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let (_, value) = self.0.iter().find(|(key, _)| key.as_bytes() == Some(name.as_bytes()))?;
        (*value != Value::Nil).then_some(value)
    }

    /// A field that every supported server has.
    pub(crate) fn need(&self, name: &str) -> Result<&Value, Error> {
        self.get(name).ok_or_else(|| Error::new(ErrorKind::Protocol, format!("the reply has no field `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerError;
    use crate::command::tests::{list, text};

    #[test]
    fn a_shape_shows_types_and_lengths_but_no_payload() {
        let value = list([
            text("secret"),
            Value::Int(4111),
            Value::Map(vec![(text("card"), Value::Nil)]),
            Value::Error(ServerError::parse("ERR secret")),
            Value::Double(1.0),
            Value::Bool(true),
        ]);
        assert_eq!(shape(&value), "[text(6), int, {text(4), nil}, error(ERR)… 6 in all]");
        let error = unexpected("an entry", &value).to_string();
        assert!(!error.contains("secret") && !error.contains("4111"), "{error}");
    }

    #[test]
    fn a_shape_is_short_however_deep_the_value_is() {
        let mut value = Value::Nil;
        for _ in 0..1000 {
            value = list([value.clone()]);
        }
        assert_eq!(shape(&value), "[[[[[… 1 in all]]]]]");
    }

    #[test]
    fn entries_accept_holes_nil_fields_and_maps() {
        let got = entries(list([
            list([text("1-0"), list([text("a"), text("1"), text("a"), text("2")])]),
            Value::Nil,
            list([text("2-0"), Value::Nil]),
            list([text("3-0"), Value::Map(vec![(text(""), text(""))]), Value::Int(5), Value::Int(1)]),
        ]))
        .unwrap();
        assert_eq!(got.holes, 1);
        assert_eq!(got.deleted, [EntryId::new(2, 0)]);
        assert_eq!(
            got.entries,
            [
                Entry::new(EntryId::new(1, 0), [("a", "1"), ("a", "2")]).unwrap(),
                Entry::new(EntryId::new(3, 0), [("", "")]).unwrap(),
            ]
        );
        assert!(entries(Value::Nil).unwrap().entries.is_empty());
    }

    #[test]
    fn broken_entries_are_refused() {
        for value in [
            Value::Int(1),
            list([Value::Int(1)]),
            list([list([text("1-0")])]),
            list([list([text("x"), list([])])]),
            list([list([text("1-0"), list([text("odd")])])]),
            list([list([text("1-0"), list([text("a"), Value::Nil])])]),
        ] {
            let error = entries(value).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Protocol);
        }
    }
}
