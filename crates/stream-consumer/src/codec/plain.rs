//! Extractors that decode little or nothing: the payload's bytes, all fields, the entry, its id, its attempt.

use bytes::Bytes;
use stream_core::{Entry, EntryId};

use super::{DATA_FIELD, DecodeError, FromDelivery};
use crate::delivery::{Context, Delivery};

/// The bytes of the field [`DATA_FIELD`], or of the only field; shared memory, not a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data(pub Bytes);

impl FromDelivery for Data {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        let entry = delivery.entry();
        match entry.get_bytes(DATA_FIELD) {
            Some(bytes) => Ok(Self(bytes)),
            None => match entry.fields().next() {
                Some((name, _)) if entry.fields().len() == 1 => {
                    entry.get_bytes(name).map(Self).ok_or_else(|| DecodeError::missing_field(DATA_FIELD))
                }
                _ => Err(DecodeError::missing_field(DATA_FIELD)),
            },
        }
    }
}

/// All fields, in the order of the server, duplicates included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields(pub Vec<(Bytes, Bytes)>);

impl FromDelivery for Fields {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        let copy = |(name, value)| (Bytes::copy_from_slice(name), Bytes::copy_from_slice(value));
        Ok(Self(delivery.entry().fields().map(copy).collect()))
    }
}

/// The number of this start of the handler, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attempt(pub u32);

impl FromDelivery for Attempt {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        Ok(Self(delivery.attempt()))
    }
}

impl FromDelivery for Entry {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        Ok(delivery.entry().clone())
    }
}

impl FromDelivery for EntryId {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        Ok(delivery.id())
    }
}

impl FromDelivery for Context {
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        Ok(delivery.context())
    }
}

impl<T: FromDelivery> FromDelivery for Result<T, DecodeError> {
    /// Lets a handler decide itself what to do about an entry that cannot be decoded.
    fn from_delivery(delivery: &Delivery) -> Result<Self, DecodeError> {
        Ok(T::from_delivery(delivery))
    }
}

/// The payload's bytes: the field [`DATA_FIELD`], or the only field.
pub(crate) fn payload_of(entry: &Entry) -> Option<&[u8]> {
    entry.get(DATA_FIELD).or_else(|| {
        let mut fields = entry.fields();
        let only = fields.next().map(|(_, value)| value);
        fields.next().is_none().then_some(only).flatten()
    })
}
