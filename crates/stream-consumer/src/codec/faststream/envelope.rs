//! [`FastStreamEnvelope`]: the two envelopes of `FastStream`, decoded from bytes that anybody may have written.
//!
//! What must stay true: no input makes it panic, and none makes it allocate more than a small multiple of its own size,
//! whatever numbers it holds. The body is a slice of the input.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::codec::DecodeError;

const MAGIC: &[u8; 8] = b"\x89BIN\r\n\x1a\n";
const VERSION: u16 = 1;
/// The magic, the version and the two offsets.
const FIXED: usize = 18;

/// Headers and body of a message, before the body is decoded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FastStreamEnvelope {
    /// The headers; of two with one name the last.
    pub headers: BTreeMap<String, String>,
    /// The body; shared memory, not a copy, unless it came in a JSON envelope.
    pub body: Bytes,
}

impl FastStreamEnvelope {
    /// Decodes the value of the field `__data__`: a binary envelope of version 1, a JSON envelope, or else a body without
    /// headers.
    ///
    /// Binary headers that are not ASCII are read both as they should be, with lengths in bytes, and as `FastStream` itself
    /// writes them, with lengths in characters: only one of the two fits.
    ///
    /// # Errors
    /// [`DecodeError`] when it is an envelope (it begins like one) and is damaged or of a version that is not known.
    pub fn decode(value: &Bytes) -> Result<Self, DecodeError> {
        if value.starts_with(MAGIC) {
            return binary(value);
        }
        // What a transfer as text makes of the magic: a bit cut off, line ends exchanged, the rest cut off.
        if value.get(1..4) == Some(&MAGIC[1..4]) && matches!(value.first(), Some(0x89 | 0x09)) {
            return Err(damaged("its magic bytes are not those of an envelope"));
        }
        if value.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{')
            && let Ok(Json { data, headers }) = serde_json::from_slice(value)
        {
            return Ok(Self { headers: json_headers(headers)?, body: data.into() });
        }
        Ok(Self { headers: BTreeMap::new(), body: value.clone() })
    }
}

#[derive(Deserialize)]
struct Json {
    data: String,
    #[serde(default)]
    headers: Value,
}

fn json_headers(headers: Value) -> Result<BTreeMap<String, String>, DecodeError> {
    let text = |value| if let Value::String(text) = value { text } else { value.to_string() };
    match headers {
        Value::Null => Ok(BTreeMap::new()),
        Value::Object(headers) => Ok(headers.into_iter().map(|(name, value)| (name, text(value))).collect()),
        _ => Err(damaged("its headers are not an object")),
    }
}

fn damaged(why: &str) -> DecodeError {
    DecodeError::new(format!("the field `__data__` is a damaged envelope: {why}"))
}

fn binary(value: &Bytes) -> Result<FastStreamEnvelope, DecodeError> {
    let mut fixed = Cursor { rest: value.get(MAGIC.len()..FIXED).ok_or_else(|| damaged("it is cut off"))? };
    let version = fixed.short()?;
    if version != VERSION {
        return Err(damaged(&format!("it is of version {version}, and only version {VERSION} is known")));
    }
    let (headers_start, data_start) = (fixed.int()? as usize, fixed.int()? as usize);
    if headers_start < FIXED || data_start < headers_start || data_start > value.len() {
        return Err(damaged(&format!(
            "its headers begin at {headers_start} and its body at {data_start}, of {} bytes",
            value.len()
        )));
    }
    let mut table = Cursor { rest: &value[headers_start..data_start] };
    let count = table.short()?;
    // Each header takes four bytes at least.
    if usize::from(count) * 4 > table.rest.len() {
        return Err(damaged(&format!("it announces {count} headers in {} bytes", table.rest.len())));
    }
    let in_bytes = table.headers(count, Cursor::text_of_bytes);
    let headers = match in_bytes {
        Ok((headers, [])) => headers,
        // Something is left over, or does not fit: read with lengths in characters, all of it may fit.
        in_bytes => match table.headers(count, Cursor::text_of_characters) {
            Ok((headers, [])) => headers,
            _ => in_bytes?.0,
        },
    };
    Ok(FastStreamEnvelope { headers, body: value.slice(data_start..) })
}

/// Takes values from the front of bytes.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    rest: &'a [u8],
}

type Headers = BTreeMap<String, String>;

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or_else(|| damaged("a length in it points past its end"))?;
        self.rest = rest;
        Ok(taken)
    }

    fn short(&mut self) -> Result<u16, DecodeError> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn int(&mut self) -> Result<u32, DecodeError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A text whose length counts bytes.
    fn text_of_bytes(&mut self) -> Result<&'a str, DecodeError> {
        let length = self.short()?;
        utf8(self.take(usize::from(length))?)
    }

    /// A text whose length counts characters.
    fn text_of_characters(&mut self) -> Result<&'a str, DecodeError> {
        let characters = self.short()?;
        let mut end = 0;
        for _ in 0..characters {
            end += match self.rest.get(end) {
                Some(0xf0..) => 4,
                Some(0xe0..) => 3,
                Some(0xc0..) => 2,
                _ => 1,
            };
        }
        utf8(self.take(end)?)
    }

    /// So many headers, and what follows them.
    fn headers(
        mut self,
        count: u16,
        text: fn(&mut Self) -> Result<&'a str, DecodeError>,
    ) -> Result<(Headers, &'a [u8]), DecodeError> {
        let mut headers = Headers::new();
        for _ in 0..count {
            let (name, value) = (text(&mut self)?, text(&mut self)?);
            headers.insert(name.to_owned(), value.to_owned());
        }
        Ok((headers, self.rest))
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|_| damaged("a header is not UTF-8"))
}

#[cfg(test)]
mod tests;
