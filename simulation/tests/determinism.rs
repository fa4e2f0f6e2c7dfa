//! A seed decides everything.

use streamkeeper_simulation::{Options, run};

/// Runs on threads of their own and at the same time, so that nothing of one run, and no clock, can show in another.
#[test]
fn the_same_seed_gives_the_same_journal_byte_for_byte() {
    let verbose = Options { verbose: true, ..Options::default() };
    for seed in 0..24 {
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| run(seed, verbose));
            let second = scope.spawn(|| run(seed, verbose));
            (first.join().unwrap(), second.join().unwrap())
        });
        if first.journal != second.journal {
            let lines = first.journal.lines().zip(second.journal.lines()).enumerate();
            let differs = lines.into_iter().find(|(_, (a, b))| a != b);
            panic!("seed {seed} gave two journals, which differ first at {differs:?}");
        }
        assert_eq!(first.tally, second.tally);
        assert!(first.journal.len() > 10_000, "there is something in it");
    }
}

#[test]
fn another_seed_gives_another_journal() {
    assert_ne!(run(1, Options::default()).journal, run(2, Options::default()).journal);
}
