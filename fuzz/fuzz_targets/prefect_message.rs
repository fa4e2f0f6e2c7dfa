//! Messages of Prefect: whatever the two fields hold, they are decoded or refused.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stream_consumer::PrefectMessage;

fuzz_target!(|fields: (&[u8], &[u8])| {
    let (data, attributes) = fields;
    if let Ok(message) = PrefectMessage::decode(Bytes::copy_from_slice(data), attributes) {
        assert_eq!(message.data, data);
        let _ = (message.text().is_ok(), message.json::<u64>().is_ok(), message.attribute("id").is_some());
    }
});
