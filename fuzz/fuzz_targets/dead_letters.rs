//! Dead letters of both layouts: any fields are a letter or refused, and a letter that was read is written as it was.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use stream_core::{DeadLetter, Entry, EntryId, LetterContent};

const NAMES: &[&str] = &[
    "streamkeeper",
    "stream",
    "group",
    "consumer",
    "id",
    "attempts",
    "reason",
    "detail",
    "at",
    "redriven",
    "fields",
    "data",
];

#[derive(Debug)]
struct Fields(Vec<(Vec<u8>, Vec<u8>)>);

impl<'a> Arbitrary<'a> for Fields {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let mut fields = Vec::new();
        for nth in 0..input.int_in_range(0..=20)? {
            let known = input.ratio(9, 10)?;
            let name = match known {
                // Mostly in their order, so that whole headers come up.
                true if input.ratio(3, 4)? => NAMES[nth % NAMES.len()].as_bytes().to_vec(),
                true => input.choose(NAMES)?.as_bytes().to_vec(),
                false => input.arbitrary()?,
            };
            let value = match input.int_in_range(0..=4)? {
                0 => input.arbitrary::<u16>()?.to_string().into_bytes(),
                1 => format!("{}-{}", input.arbitrary::<u8>()?, input.arbitrary::<u8>()?).into_bytes(),
                2 => b"1".to_vec(),
                3 => br#"{"data":"x","attributes":{"a":"b"},"retry_count":1,"timestamp":"2.5","message_id":"m"}"#
                    .to_vec(),
                _ => input.arbitrary()?,
            };
            fields.push((name, value));
        }
        Ok(Self(fields))
    }
}

fuzz_target!(|fields: Fields| {
    let id = EntryId::new(5, 0);
    let Ok(entry) = Entry::new(id, fields.0.iter().map(|(name, value)| (name, value))) else { return };
    if let Ok(letter) = DeadLetter::from_entry(&entry) {
        let again = Entry::new(id, letter.to_fields()).expect("it was not too large before");
        assert_eq!(DeadLetter::from_entry(&again).as_ref(), Ok(&letter));
        let hash = letter.to_hash("5-0");
        let read = LetterContent::from_hash(hash.iter().map(|(name, value)| (name.as_ref(), value.as_ref())));
        assert_eq!(read, Ok(LetterContent::from(letter)));
    }
    let pairs = || fields.0.iter().map(|(name, value)| (name.as_slice(), value.as_slice()));
    let _ = LetterContent::from_hash(pairs());
    if let Ok(content) = LetterContent::from_provenance(pairs()) {
        let written = content.provenance();
        let read = LetterContent::from_provenance(written.iter().map(|(name, value)| (name.as_ref(), value.as_ref())));
        assert_eq!(read, Ok(content));
    }
});
