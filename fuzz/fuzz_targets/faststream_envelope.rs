//! The envelopes of `FastStream`: whatever the bytes are, they are decoded or refused, and what is kept is a small
//! multiple of what there was: a number in JSON may grow when it is written out.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use stream_consumer::FastStreamEnvelope;

/// What the decoder takes for the beginning of an envelope; without it, hardly an input would get beyond.
const BEGINNING: &[u8] = b"\x89BIN\r\n\x1a\n\0\x01";

fuzz_target!(|data: &[u8]| {
    for value in [Bytes::copy_from_slice(data), [BEGINNING, data].concat().into()] {
        if let Ok(envelope) = FastStreamEnvelope::decode(&value) {
            let kept: usize = envelope.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
            assert!(kept + envelope.body.len() <= 8 * value.len());
        }
    }
});
