//! The simulation finds bugs: each that is put in on purpose is found within 200 seeds, which are clean without it.

use streamkeeper_simulation::{Mutation, Options, run};

/// The first of 200 seeds that finds the bug.
fn found(mutation: Mutation) -> (u64, Vec<String>) {
    for seed in 0..200 {
        let violations = run(seed, Options { mutation: Some(mutation), verbose: false }).violations;
        if !violations.is_empty() {
            return (seed, violations);
        }
    }
    panic!("{} was not found in 200 seeds", mutation.name());
}

/// The bug is found, and it is the bug that is found.
fn is_found(mutation: Mutation) {
    let (seed, violations) = found(mutation);
    println!("{} in seed {seed}: {}", mutation.name(), violations[0]);
    let clean = run(seed, Options::default()).violations;
    assert!(clean.is_empty(), "seed {seed} has these violations without the bug as well: {clean:?}");
}

#[test]
fn an_acknowledgement_before_the_handler_is_found() {
    is_found(Mutation::AcknowledgeFirst);
}

#[test]
fn a_renewal_without_a_look_at_the_owner_is_found() {
    is_found(Mutation::RenewUnfenced);
}

#[test]
fn a_claim_cursor_that_begins_anew_with_each_page_is_found() {
    is_found(Mutation::CursorRestarts);
}

#[test]
fn a_trim_floor_from_what_was_delivered_last_is_found() {
    is_found(Mutation::TrimDelivered);
}

#[test]
fn a_group_that_is_made_anew_at_the_end_is_found() {
    is_found(Mutation::GroupAtEnd);
}

#[test]
fn a_dead_letter_after_its_acknowledgement_is_found() {
    is_found(Mutation::LetterLast);
}

#[test]
fn acknowledgements_dropped_with_their_connection_are_found() {
    is_found(Mutation::AcknowledgementsDropped);
}

#[test]
fn an_own_pending_list_that_is_not_read_after_a_cut_reply_is_found() {
    is_found(Mutation::OwnPendingUnread);
}
