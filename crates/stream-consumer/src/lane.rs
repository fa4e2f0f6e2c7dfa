//! [`LaneOf`]: which entries have to run one at a time, in their order.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;

use stream_core::Entry;

use crate::delivery::Delivery;
use crate::guard::guarded;

/// Computes the lane of an entry; `None` for entries that need no order.
pub(crate) type LaneOf = Arc<dyn Fn(&Entry) -> Option<u64> + Send + Sync>;

/// The lane is made of a key of the entry.
pub(crate) fn by_entry<K: Hash>(key: impl Fn(&Entry) -> Option<K> + Send + Sync + 'static) -> LaneOf {
    let hasher = RandomState::new();
    Arc::new(move |entry| key(entry).map(|key| hasher.hash_one(key)))
}

/// The lane is made of the value of a field.
pub(crate) fn by_field(field: &[u8]) -> LaneOf {
    let field = field.to_vec();
    by_entry(move |entry| entry.get_bytes(&field))
}

/// The lane is made of a key of the JSON payload; an entry that cannot be decoded has none.
pub(crate) fn by_json<T, K>(key: impl Fn(&T) -> K + Send + Sync + 'static) -> LaneOf
where
    T: serde::de::DeserializeOwned,
    K: Hash,
{
    by_entry(move |entry| {
        let payload = crate::codec::payload_of(entry)?;
        serde_json::from_slice(payload).ok().map(|value| key(&value))
    })
}

/// The lane of a delivery. A key is made by code of the user: one that panics is an entry without an order, not the end of
/// the loop.
pub(crate) fn lane(lane_of: &LaneOf, delivery: &Delivery) -> Option<u64> {
    guarded(|| lane_of(delivery.entry())).unwrap_or_else(|panic| {
        tracing::error!(stream = %delivery.source.stream, id = %delivery.id(), panic, "the order's key panicked");
        None
    })
}
