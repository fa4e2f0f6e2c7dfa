//! The decoder of envelopes against what `FastStream` writes, against damage, and against anything.

use proptest::prelude::*;

use super::*;

/// Written by `FastStream` 0.7.8: a text with a correlation id, a reply channel and a header of its own.
const TEXT: &[u8] = b"\x89BIN\r\n\x1a\n\x00\x01\x00\x00\x00\x12\x00\x00\x00d\x00\x04\x00\x0ecorrelation_id\x00\x03c-1\
\x00\x0ccontent-type\x00\ntext/plain\x00\x08reply_to\x00\x07answers\x00\x06tenant\x00\x04bluehello";

/// By the same: headers that are not ASCII, with lengths in characters.
const UNICODE: &[u8] = b"\x89BIN\r\n\x1a\n\x00\x01\x00\x00\x00\x12\x00\x00\x00Z\x00\x03\x00\x0ecorrelation_id\x00\x01c\
\x00\x0ccontent-type\x00\x10application/json\x00\x04gr\xc3\xbcn\x00\x06gr\xc3\xb6\xc3\x9fe\xe2\x86\x92{\"n\":1,\"u\":\"\xc3\xbc\"}";

fn decode(value: &[u8]) -> Result<FastStreamEnvelope, DecodeError> {
    FastStreamEnvelope::decode(&Bytes::copy_from_slice(value))
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A binary envelope with these parts, whatever they say.
fn envelope(version: u16, headers_start: u32, data_start: u32, rest: &[u8]) -> Vec<u8> {
    let parts = [&MAGIC[..], &version.to_be_bytes(), &headers_start.to_be_bytes(), &data_start.to_be_bytes(), rest];
    parts.concat()
}

/// A correct one.
fn encode(headers: &[(String, String)], body: &[u8]) -> Vec<u8> {
    let mut table = (headers.len() as u16).to_be_bytes().to_vec();
    for part in headers.iter().flat_map(|(name, value)| [name, value]) {
        table.extend((part.len() as u16).to_be_bytes());
        table.extend(part.as_bytes());
    }
    envelope(1, 18, 18 + table.len() as u32, &[&table, body].concat())
}

#[test]
fn what_faststream_writes_is_read() {
    let text = decode(TEXT).unwrap();
    assert_eq!(&text.body[..], b"hello");
    let expected =
        [("correlation_id", "c-1"), ("content-type", "text/plain"), ("reply_to", "answers"), ("tenant", "blue")];
    assert_eq!(text.headers, headers(&expected));

    let unicode = decode(UNICODE).unwrap();
    assert_eq!(unicode.body, "{\"n\":1,\"u\":\"ü\"}");
    let expected = [("correlation_id", "c"), ("content-type", "application/json"), ("grün", "größe→")];
    assert_eq!(unicode.headers, headers(&expected));
}

#[test]
fn the_json_envelope_is_read() {
    let envelope =
        decode(r#" {"data":"\u00fc\n","headers":{"a":"1","n":2,"deep":[true]},"more":0}"#.as_bytes()).unwrap();
    assert_eq!(envelope.body, "ü\n");
    assert_eq!(envelope.headers, headers(&[("a", "1"), ("n", "2"), ("deep", "[true]")]));
    assert_eq!(decode(br#"{"data":"x"}"#).unwrap().body, "x");
    assert!(decode(br#"{"data":"x","headers":[1]}"#).unwrap_err().to_string().ends_with("not an object"));
}

#[test]
fn what_is_no_envelope_is_a_body() {
    for raw in [&b""[..], b"x", b"{", b"{\"data\":1}", b"[1]", b"\x89PNG\r\n\x1a\n", b"\xff\xff", b"\x89"] {
        assert_eq!(decode(raw).unwrap(), FastStreamEnvelope { headers: Headers::new(), body: raw.to_vec().into() });
    }
}

#[test]
fn damage_is_told() {
    let check = |value: &[u8], why: &str| {
        let error = decode(value).unwrap_err().to_string();
        assert!(error.starts_with("the field `__data__` is a damaged envelope: "), "{error}");
        assert!(error.contains(why), "{error}");
    };
    check(b"\x89BIN\n\x1a\n\x00\x01", "magic");
    check(b"\x09BIN\r\n\x1a\n\x00\x01", "magic");
    check(MAGIC, "cut off");
    check(&TEXT[..17], "cut off");
    check(&envelope(2, 18, 20, b"\0\0"), "version 2");
    check(&envelope(1, 17, 20, b"\0\0"), "begin at 17");
    check(&envelope(1, 20, 18, b"\0\0"), "body at 18");
    check(&envelope(1, 18, 21, b"\0\0"), "body at 21");
    check(&envelope(1, u32::MAX, u32::MAX, b"\0\0"), "4294967295");
    check(&envelope(1, 18, 18, b"\0\0"), "past its end");
    check(&envelope(1, 18, 20, b"\xff\xff"), "65535 headers in 0 bytes");
    check(&envelope(1, 18, 26, b"\0\x01\xff\xffabcd"), "past its end");
    check(&envelope(1, 18, 26, b"\0\x01\0\x02a\xff\0\0"), "not UTF-8");
}

#[test]
fn every_cut_of_an_envelope_is_told_or_shortens_the_body() {
    for end in 0..TEXT.len() {
        match decode(&TEXT[..end]) {
            Ok(envelope) if end >= 100 => assert_eq!(envelope.body, TEXT[100..end]),
            Ok(envelope) => assert!(end < 4 && envelope.body == TEXT[..end], "{end}"),
            Err(_) => assert!((4..100).contains(&end), "{end}"),
        }
    }
}

proptest! {
    #[test]
    fn any_message_comes_back(pairs in proptest::collection::vec((".{0,20}", ".{0,20}"), 0..8), body: Vec<u8>) {
        let pairs: Vec<(String, String)> = pairs;
        let decoded = decode(&encode(&pairs, &body)).unwrap();
        prop_assert_eq!(decoded.body, body);
        prop_assert_eq!(decoded.headers, pairs.into_iter().collect::<Headers>());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(magic: bool, bytes: Vec<u8>) {
        let value = if magic { [&MAGIC[..], b"\0\x01", &bytes].concat() } else { bytes };
        bounded(&value)?;
    }

    #[test]
    fn any_damage_is_decoded_or_refused(
        unicode: bool,
        at: prop::sample::Index,
        with: Vec<u8>,
        cut: prop::sample::Index,
    ) {
        let mut value = if unicode { UNICODE } else { TEXT }.to_vec();
        let at = at.index(value.len());
        let end = (at + with.len()).min(value.len());
        value.splice(at..end, with);
        value.truncate(cut.index(value.len()) + 1);
        bounded(&value)?;
    }
}

/// Whatever was made of it is not more than there was.
fn bounded(value: &[u8]) -> Result<(), TestCaseError> {
    if let Ok(envelope) = decode(value) {
        let kept: usize = envelope.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        prop_assert!(kept + envelope.body.len() <= value.len());
    }
    Ok(())
}
