//! [`Partitions`]: one logical stream over several, and which of them an entry's key belongs to.
//!
//! What must stay true: the partition of a key depends on the key's bytes and the number of partitions alone, for ever and
//! in every language. Publishers of another version, or in Python, must not disagree.

use std::sync::Arc;

use crate::StreamKey;

/// More partitions are refused: a consumer that reads all of them has so many connections.
const MOST: usize = 4_096;

/// One logical stream over `N` streams `name:{0}` … `name:{N-1}`, so that more than one node of a cluster bears its load.
///
/// An entry goes to the partition of its key, so entries of one key are in one stream, in the order in which they were
/// added. Consumers read all partitions, or those that are theirs.
///
/// **The number is for ever.** With another `N` most keys move: what is published then may be handled before what waits in
/// the former partition of its key. Take more than the masters you have, for example four times what you expect to have
/// (16 for a small cluster), since partitions can move to new masters and cannot be divided. Each partition costs every
/// consumer a connection and one read for each BLOCK period, so hundreds are rarely worth it. To change the number, publish
/// to a new name and let consumers finish the old one first.
///
/// **Slots.** The number in braces is the hash tag, so each partition has a slot of its own, and whatever is named after it
/// shares that slot: its dead letters `name:{3}:dead` are written in one atomic step. Partition 3 of another name is in the
/// same slot as well.
///
/// ```
/// use stream_core::Partitions;
///
/// let orders = Partitions::new("orders", 16)?;
/// assert_eq!(orders.keys().len(), 16);
/// assert_eq!(orders.of("customer-7"), 13);
/// assert_eq!(orders.key_of("customer-7").to_string(), "orders:{13}");
/// # Ok::<(), stream_core::PartitionsError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partitions {
    keys: Arc<[StreamKey]>,
}

/// Why there cannot be such partitions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionsError {
    /// The name is empty.
    #[error("partitions need a name: give it at least one byte")]
    NoName,
    /// The name has a brace, which would be taken for the hash tag, and all partitions would be in one slot.
    #[error("the name of partitions must have no `{{`: it would put all of them into one slot of a cluster")]
    Brace,
    /// No partition, or too many.
    #[error("{0} partitions are out of range: from 1 to 4096")]
    Count(usize),
}

impl Partitions {
    /// The partitions of `name`, `count` of them: 1 to 4,096. With one, all entries are in `name:{0}`.
    ///
    /// # Errors
    /// [`PartitionsError`] when the name is empty or has a `{`, or the number is out of range.
    pub fn new(name: impl AsRef<[u8]>, count: usize) -> Result<Self, PartitionsError> {
        let name = name.as_ref();
        if name.is_empty() {
            return Err(PartitionsError::NoName);
        }
        if name.contains(&b'{') {
            return Err(PartitionsError::Brace);
        }
        if !(1..=MOST).contains(&count) {
            return Err(PartitionsError::Count(count));
        }
        let key = |place: usize| StreamKey::new([name, format!(":{{{place}}}").as_bytes()].concat());
        (0..count).map(key).collect::<Result<_, _>>().map(|keys| Self { keys }).map_err(|_| PartitionsError::NoName)
    }

    /// The streams, in the order of their numbers: to create groups, trim, clean up or look at the lag of each.
    ///
    /// Those of one of `m` processes that share the partitions among them are `keys().iter().skip(k).step_by(m)`: then the
    /// order of a key holds beyond one process.
    pub fn keys(&self) -> &[StreamKey] {
        &self.keys
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// The stream with this number.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn key(&self, number: usize) -> &StreamKey {
        &self.keys[number]
    }

    /// The number of the partition that entries of `key` belong to: [`crc16`] of its bytes, modulo the number of
    /// partitions.
    ///
    /// In Python that is `binascii.crc_hqx(key, 0) % count`. Where the number is a power of two and the key has no brace,
    /// it is also `CLUSTER KEYSLOT key` modulo that.
    pub fn of(&self, key: impl AsRef<[u8]>) -> usize {
        usize::from(crc16(key.as_ref())) % self.keys.len()
    }

    /// The stream that entries of `key` belong to.
    pub fn key_of(&self, key: impl AsRef<[u8]>) -> &StreamKey {
        &self.keys[self.of(key)]
    }
}

/// CRC-16/XMODEM: polynomial 0x1021, beginning with 0, nothing reflected. The one that Redis Cluster finds slots with.
///
/// ```
/// assert_eq!(stream_core::crc16(b"123456789"), 0x31C3);
/// ```
pub fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    bytes.iter().fold(0, |crc, &byte| (0..8).fold(crc ^ (u16::from(byte) << 8), step))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_named_by_their_number() {
        let orders = Partitions::new("orders", 3).unwrap();
        let names: Vec<_> = orders.keys().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["orders:{0}", "orders:{1}", "orders:{2}"]);
        assert_eq!(orders.key(2), &orders.keys()[2]);
        assert_eq!(Partitions::new(b"\xff", 1).unwrap().key(0).as_bytes(), b"\xff:{0}");
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert_eq!(Partitions::new("", 1), Err(PartitionsError::NoName));
        assert_eq!(Partitions::new("{orders}", 4), Err(PartitionsError::Brace));
        for count in [0, 4_097] {
            assert_eq!(Partitions::new("orders", count), Err(PartitionsError::Count(count)));
        }
        assert_eq!(
            PartitionsError::Brace.to_string(),
            "the name of partitions must have no `{`: it would put all of them into one slot of a cluster"
        );
        assert_eq!(Partitions::new("orders", 4_096).unwrap().count(), 4_096);
    }

    /// By `binascii.crc_hqx(key, 0) % count` of Python 3. Never change these: entries of a key would change their stream.
    #[test]
    fn the_partition_of_a_key_is_for_ever() {
        const KEYS: [&[u8]; 8] =
            [b"", b"0", b"a", b"customer-7", b"customer-8", b"{tag}x", "Zürich".as_bytes(), b"\0\xff"];
        const GOLDEN: [(usize, [usize; 8]); 4] = [
            (16, [0, 3, 7, 13, 2, 9, 12, 0]),
            (7, [0, 5, 1, 0, 1, 0, 0, 3]),
            (1_000, [0, 907, 879, 413, 698, 657, 572, 920]),
            (4_096, [0, 1_619, 3_207, 3_165, 3_506, 697, 1_324, 3_824]),
        ];
        for (count, places) in GOLDEN {
            let partitions = Partitions::new("orders", count).unwrap();
            assert_eq!(KEYS.map(|key| partitions.of(key)), places, "of {count}");
        }
    }

    #[test]
    fn numbered_keys_are_spread_evenly() {
        for count in [2, 7, 16, 100] {
            let partitions = Partitions::new("orders", count).unwrap();
            let mut entries = vec![0_usize; count];
            for number in 0..count * 1_000 {
                entries[partitions.of(format!("customer-{number}"))] += 1;
            }
            let (least, most) = (entries.iter().min().unwrap(), entries.iter().max().unwrap());
            assert!((800..=1_250).contains(least) && (800..=1_250).contains(most), "{least} to {most} of {count}");
        }
    }

    proptest! {
        #[test]
        fn a_key_is_always_in_the_same_partition(key: Vec<u8>, count in 1_usize..=4_096, name in "[^{]{1,20}") {
            let partitions = Partitions::new(&name, count).unwrap();
            let place = partitions.of(&key);
            prop_assert!(place < count);
            // The name is of no account, and a copy of the key is the same key.
            prop_assert_eq!(Partitions::new("other", count).unwrap().of(key.clone()), place);
            prop_assert_eq!(partitions.key_of(&key), partitions.key(place));
            let tag = format!(":{{{place}}}");
            prop_assert!(partitions.key(place).as_bytes().ends_with(tag.as_bytes()));
        }
    }
}
