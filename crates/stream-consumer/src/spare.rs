//! Lists that are full for a moment and empty the rest of the time: the loops of a thread take turns in their memory.
//!
//! A consumer of many streams would else touch memory of its own for each, which costs more than what is done with it. What
//! must stay true: nothing is ever in a list that is given back.

use std::cell::Cell;
use std::thread::LocalKey;

use stream_redis::ReadBatch;

/// A list whose memory is shared.
pub(crate) trait Spare: Default + 'static {
    /// The one that nobody on this thread needs at the moment.
    fn shared() -> &'static LocalKey<Cell<Self>>;

    fn capacity(&self) -> usize;

    fn is_empty(&self) -> bool;
}

/// Takes the shared memory where `list` has none.
pub(crate) fn borrow<T: Spare>(list: &mut T) {
    if list.capacity() == 0 {
        // A thread that is about to end shares nothing.
        *list = T::shared().try_with(Cell::take).unwrap_or_default();
    }
}

/// Leaves the memory to others, if the list is empty.
pub(crate) fn give_back<T: Spare>(list: &mut T) {
    if list.is_empty() && list.capacity() > 0 {
        let list = std::mem::take(list);
        let _ = T::shared().try_with(|shared| shared.set(list));
    }
}

impl Spare for ReadBatch {
    fn shared() -> &'static LocalKey<Cell<Self>> {
        thread_local!(static SHARED: Cell<ReadBatch> = Cell::default());
        &SHARED
    }

    fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.deleted.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_from_one_to_the_next_and_only_when_it_is_empty() {
        let (mut first, mut second) = (ReadBatch::default(), ReadBatch::default());
        first.deleted.push(stream_core::EntryId::ZERO);
        first.entries.reserve(100);
        give_back(&mut first);
        assert!(first.entries.capacity() >= 100, "it is in use");
        first.deleted.clear();
        give_back(&mut first);
        borrow(&mut second);
        assert_eq!((first.entries.capacity(), second.entries.capacity() >= 100), (0, true));
        let room = second.entries.capacity();
        borrow(&mut second);
        assert_eq!(second.entries.capacity(), room, "it has one already");
    }
}
