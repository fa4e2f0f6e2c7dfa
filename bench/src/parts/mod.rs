//! Parts of the library, one by one, through their public API: for criterion (`cargo bench -p streamkeeper-bench`) and for
//! counting instructions (`cargo xtask instructions`).
//!
//! What must stay true: one run of a part is the same work every time, and what it needs is made before.

mod decide;
mod decode;
mod dispatch;

/// One part: what is run, and how many items (entries, ids, groups) one run goes through.
pub struct Part {
    /// Items of one run.
    pub items: u64,
    run: Box<dyn FnMut()>,
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part").field("items", &self.items).finish_non_exhaustive()
    }
}

impl Part {
    pub(crate) fn new(items: u64, run: impl FnMut() + 'static) -> Self {
        Self { items, run: Box::new(run) }
    }

    /// Goes through all items once.
    pub fn run(&mut self) {
        (self.run)();
    }
}

type Make = fn() -> Part;

/// All parts by name, made when they are wanted.
pub const PARTS: [(&str, Make); 16] = [
    ("decode/200B", || decode::reply_of(1_000, 1, 200, 64 << 10)),
    ("decode/1KiB", || decode::reply_of(1_000, 1, 1 << 10, 64 << 10)),
    ("decode/32-fields", || decode::reply_of(1_000, 32, 20, 64 << 10)),
    ("decode/200B-in-chunks-of-1B", || decode::reply_of(100, 1, 200, 1)),
    ("decode/200B-in-chunks-of-64B", || decode::reply_of(1_000, 1, 200, 64)),
    ("decode/200B-in-chunks-of-4KiB", || decode::reply_of(1_000, 1, 200, 4 << 10)),
    ("decode/200B-in-chunks-of-1MiB", || decode::reply_of(1_000, 1, 200, 1 << 20)),
    ("ledger/take-and-settle", decide::ledger),
    ("ledger/due-of-10000", decide::due),
    ("claim-cursor", decide::claim_cursor),
    ("trim-plan/10000-groups", decide::trim_plan),
    ("acknowledge/encode-1000", decide::acknowledge),
    ("dispatch/no-op", || dispatch::no_op(64)),
    ("dispatch/no-op-one-at-a-time", || dispatch::no_op(1)),
    ("dispatch/no-op-batches", dispatch::batches),
    ("dispatch/no-op-ephemeral", dispatch::ephemeral),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_runs_more_than_once() {
        for (name, make) in PARTS {
            let mut part = make();
            assert!(part.items > 0, "{name}");
            part.run();
            part.run();
        }
    }
}
