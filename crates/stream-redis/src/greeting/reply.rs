//! Just enough RESP to read the replies to a greeting, and errors to what is appended: small, complete in a buffer, bounded.

use bytes::Bytes;

use crate::{ServerError, Value};

/// No reply nests deeper: `HELLO` lists modules as maps in an array in a map, `COMMAND DOCS` arguments in arguments.
const DEEPEST: usize = 16;

/// What is wrong with a reply: the byte that cannot be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotResp(pub(crate) u8);

/// Reads one value from the start of `buffer`: the value and its length, or `None` while it is incomplete.
pub(crate) fn parse(buffer: &[u8]) -> Result<Option<(Value, usize)>, NotResp> {
    let mut at = 0;
    Ok(value(buffer, &mut at, 0)?.map(|value| (value, at)))
}

fn value(buffer: &[u8], at: &mut usize, depth: usize) -> Result<Option<Value>, NotResp> {
    let Some(&kind) = buffer.get(*at) else { return Ok(None) };
    if depth > DEEPEST || !b"+-:$*%~>|_#,(=!".contains(&kind) {
        return Err(NotResp(kind));
    }
    let Some(line) = line(buffer, at) else { return Ok(None) };
    let number = || std::str::from_utf8(line).ok().and_then(|text| text.parse::<i64>().ok()).ok_or(NotResp(kind));
    Ok(Some(match kind {
        b'+' | b'(' => Value::Bulk(Bytes::copy_from_slice(line)),
        b'-' => Value::Error(ServerError::parse(&String::from_utf8_lossy(line))),
        b':' => Value::Int(number()?),
        b'_' => Value::Nil,
        b'#' => Value::Bool(line == b"t"),
        b',' => Value::Double(std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).ok_or(NotResp(kind))?),
        b'$' | b'=' | b'!' => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Some(Value::Nil)) };
            let Some(text) = buffer.get(*at..at.saturating_add(length).saturating_add(2)) else { return Ok(None) };
            *at += length + 2;
            let text = &text[..length];
            match kind {
                b'!' => Value::Error(ServerError::parse(&String::from_utf8_lossy(text))),
                // A verbatim string begins with its format and a colon.
                b'=' => Value::Bulk(Bytes::copy_from_slice(text.get(4..).unwrap_or_default())),
                _ => Value::Bulk(Bytes::copy_from_slice(text)),
            }
        }
        b'%' | b'|' => {
            let mut pairs = Vec::new();
            for _ in 0..number()? {
                let Some(name) = value(buffer, at, depth + 1)? else { return Ok(None) };
                let Some(value) = value(buffer, at, depth + 1)? else { return Ok(None) };
                pairs.push((name, value));
            }
            Value::Map(pairs)
        }
        _ => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Some(Value::Nil)) };
            let mut items = Vec::new();
            for _ in 0..length {
                let Some(item) = value(buffer, at, depth + 1)? else { return Ok(None) };
                items.push(item);
            }
            Value::Array(items)
        }
    }))
}

/// The rest of the line after its first byte; moves `at` behind it.
fn line<'a>(buffer: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let start = *at + 1;
    let length = buffer[start..].windows(2).position(|pair| pair == b"\r\n")?;
    *at = start + length + 2;
    Some(&buffer[start..start + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_only_when_it_is_complete() {
        let wire = b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n+modules\r\n*1\r\n%1\r\n+n\r\n=7\r\ntxt:abc\r\n+rest\r\n";
        let length = wire.len() - b"+rest\r\n".len();
        for end in 0..length {
            assert_eq!(parse(&wire[..end]), Ok(None), "{end}");
        }
        let (value, used) = parse(wire).unwrap().unwrap();
        assert_eq!(used, length);
        let module = Value::Map(vec![(Value::bulk("n"), Value::bulk("abc"))]);
        assert_eq!(
            value,
            Value::Map(vec![
                (Value::bulk("server"), Value::bulk("redis")),
                (Value::bulk("modules"), Value::Array(vec![module])),
            ])
        );
    }

    #[test]
    fn what_is_not_resp_is_refused_at_once() {
        assert_eq!(parse(b"HTTP/1.1 400 Bad Request\r\n"), Err(NotResp(b'H')));
        assert_eq!(parse(b"\x15\x03\x03"), Err(NotResp(0x15)));
        assert_eq!(parse(b":x\r\n"), Err(NotResp(b':')));
        assert_eq!(parse("*1\r\n".repeat(DEEPEST + 2).as_bytes()), Err(NotResp(b'*')));
    }

    #[test]
    fn a_length_allocates_nothing_by_itself() {
        assert_eq!(parse(b"$9223372036854775807\r\nab"), Ok(None));
        assert_eq!(parse(b"*9223372036854775807\r\n"), Ok(None));
        assert_eq!(parse(b"%9223372036854775807\r\n"), Ok(None));
    }
}
