//! Letters in hashes: what Prefect writes is read, what we write is read by both, and nothing of an entry is lost.

use proptest::prelude::*;

use super::*;
use crate::Entry;

fn letter(fields: &[(Vec<u8>, Vec<u8>)]) -> DeadLetter {
    DeadLetter {
        entry: Entry::new(EntryId::new(7, 1), fields.iter().map(|(name, value)| (name, value))).unwrap(),
        stream: StreamKey::new("events").unwrap(),
        group: GroupName::new("event-persister").unwrap(),
        consumer: ConsumerName::new("host-1").unwrap(),
        attempts: 4,
        reason: DeadReason::Exhausted { error: Some("no space".to_owned()) },
        dead_at_ms: 1_700_000_000_042,
        redriven: 0,
    }
}

fn read(fields: &[(Bytes, Bytes)]) -> Result<LetterContent, LetterError> {
    LetterContent::from_hash(fields.iter().map(|(name, value)| (&name[..], &value[..])))
}

fn field(name: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
}

#[test]
fn the_layout_is_this_one() {
    let fields = [field("data", "a \"b\""), field("attributes", r#"{"n": 1}"#)];
    let hash = letter(&fields).to_hash("0af3");
    let text: Vec<String> = hash
        .iter()
        .map(|(name, value)| format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)))
        .collect();
    let json = r#"data={"data":"a \"b\"","attributes":{"n": 1},"retry_count":4,"timestamp":"1700000000.042","message_id":"0af3"}"#;
    assert_eq!(
        text,
        [
            json,
            "streamkeeper=1",
            "stream=events",
            "group=event-persister",
            "consumer=host-1",
            "id=7-1",
            "attempts=4",
            "reason=exhausted",
            "detail=no space",
            "at=1700000000042",
            "redriven=0",
            "fields=4:data5:a \"b\"10:attributes8:{\"n\": 1}",
        ]
    );
    // And whoever knows only the first field reads the same entry.
    assert_eq!(read(&hash[..1]).unwrap().fields, read(&hash).unwrap().fields);
}

#[test]
fn a_letter_of_prefect_tells_its_entry_and_nothing_of_its_stream() {
    let json = br#"{"data": "\u00e9", "attributes": null, "retry_count": 4, "timestamp": "12.5", "message_id": "x"}"#;
    let found = read(&[(Bytes::from_static(b"data"), Bytes::from_static(json))]).unwrap();
    assert_eq!((found.get("data"), found.get("attributes")), (Some("é".as_bytes()), Some(&b"{}"[..])));
    assert_eq!((found.attempts, found.dead_at_ms, found.stream, found.reason), (Some(4), None, None, None));
}

#[test]
fn what_is_no_letter_is_refused() {
    assert_eq!(read(&[]), Err(LetterError::NoHash));
    let hash = letter(&[field("a", "b")]).to_hash("x");
    let check = |name: &str, value: &str, expected: LetterError| {
        let mut hash = hash.clone();
        hash.retain(|(field, _)| field != name);
        hash.push((Bytes::copy_from_slice(name.as_bytes()), Bytes::copy_from_slice(value.as_bytes())));
        assert_eq!(read(&hash), Err(expected), "{name}={value}");
    };
    check("streamkeeper", "2", LetterError::Version);
    for value in ["4:dat", "1:a", "x", "1:a1:b2:", "01:a1:b"] {
        check("fields", value, LetterError::Field { field: "fields" });
    }
    for (name, value) in [("id", "x"), ("attempts", "-1"), ("reason", "?"), ("at", ""), ("group", "")] {
        check(name, value, LetterError::Field { field: name });
    }
    for json in ["", "[]", "{}", r#"{"data": 7}"#] {
        let foreign = [(Bytes::from_static(b"data"), Bytes::copy_from_slice(json.as_bytes()))];
        assert_eq!(read(&foreign), Err(LetterError::Field { field: "data" }), "{json}");
    }
}

proptest! {
    #[test]
    fn letters_round_trip_whatever_the_fields_hold(
        fields in proptest::collection::vec(
            (prop_oneof![Just(b"data".to_vec()), Just(b"attributes".to_vec()), any::<Vec<u8>>()], any::<Vec<u8>>()),
            0..6,
        ),
    ) {
        let letter = letter(&fields);
        prop_assert_eq!(read(&letter.to_hash("x")), Ok(LetterContent::from(letter.clone())));
        let content = LetterContent::from(letter);
        let provenance = content.provenance();
        let back = LetterContent::from_provenance(provenance.iter().map(|(name, value)| (&name[..], &value[..])));
        prop_assert_eq!(back, Ok(LetterContent { fields: Vec::new(), ..content }));
    }

    #[test]
    fn no_field_makes_reading_panic(data: Vec<u8>, packed: Vec<u8>) {
        let hash = [(&b"data"[..], &data[..]), (b"fields", &packed)];
        let _ = LetterContent::from_hash(hash);
        let _ = LetterContent::from_hash(hash.into_iter().chain([(MARKER, VERSION)]));
    }
}
