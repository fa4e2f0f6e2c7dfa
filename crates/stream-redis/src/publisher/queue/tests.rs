//! The queue without a connection: what goes next, and what replies mean.

use super::*;
use crate::command::tests::key;

fn form(idempotent: bool) -> Form {
    Form::new(&key("s"), None, "p", idempotent)
}

fn entry(text: impl AsRef<[u8]>) -> Entry {
    Entry::new(EntryId::ZERO, [("n", text)]).unwrap()
}

fn queue(entries: u64) -> Queue<u64> {
    let mut queue = Queue::new();
    for number in 0..entries {
        queue.push(entry(number.to_string()), None, number);
    }
    queue
}

/// The last arguments of what is taken, which are the values of the entries.
fn take<W>(queue: &mut Queue<W>, most: usize, form: &Form) -> Vec<String> {
    let mut requests = Vec::new();
    let count = queue.take(most, false, form, &mut Out::Requests(&mut requests));
    assert_eq!(count, requests.len());
    requests.iter().map(|request| String::from_utf8_lossy(request.args().last().unwrap()).into_owned()).collect()
}

fn settle<W>(queue: &mut Queue<W>, replies: impl IntoIterator<Item = Reply>) -> (Settled<W>, Option<Error>) {
    let mut again = None;
    let replies: Vec<_> = replies.into_iter().collect();
    let settled = queue.settle(&key("s"), replies.into_iter(), &mut again);
    (settled, again)
}

fn id(number: u64) -> Reply {
    Reply::Id(EntryId::new(7, number))
}

fn error(line: &str) -> Reply {
    Reply::Error(ServerError::parse(line))
}

const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn a_batch_ends_at_its_size_but_holds_at_least_one() {
    let form = form(false);
    let mut queue = Queue::new();
    for size in [BATCH_BYTES + 1, 10, BATCH_BYTES - 20, 100] {
        queue.push(entry(vec![0; size]), None, ());
    }
    let mut sizes = Vec::new();
    while queue.may_take(10, &form) {
        let batch = take(&mut queue, 10, &form).len();
        sizes.push(batch);
        settle(&mut queue, vec![id(0); batch]);
    }
    assert_eq!(sizes, [1, 2, 1]);
    assert_eq!((queue.len(), queue.waiting_bytes), (0, 0));
}

#[test]
fn while_a_batch_is_on_its_way_only_a_complete_one_follows() {
    let form = form(false);
    let mut queue = queue(5);
    assert!(queue.may_take(3, &form));
    take(&mut queue, 3, &form);
    assert!(!queue.may_take(3, &form), "two are no batch of three");
    queue.push(entry("5"), None, 5);
    assert!(queue.may_take(3, &form));
    assert_eq!((take(&mut queue, 3, &form), queue.batches()), (vec!["3".into(), "4".into(), "5".into()], 2));
    queue.push(entry(vec![0; BATCH_BYTES]), None, 6);
    assert!(queue.may_take(3, &form), "a batch is complete by its bytes as well");
    assert_eq!(settle(&mut queue, (0..4).map(id)).0.told.len(), 4);
    assert_eq!((queue.batches(), queue.floor()), (1, 4));
    let (settled, again) = settle(&mut queue, (4..6).map(id));
    assert_eq!((settled.landed, again.is_none(), queue.batches()), (true, true, 0));
}

#[test]
fn what_may_go_through_later_goes_before_all_that_was_accepted_later() {
    let form = form(false);
    let mut queue = queue(8);
    take(&mut queue, 3, &form);
    take(&mut queue, 3, &form);
    let (settled, again) = settle(&mut queue, [error(FULL), id(1)]);
    assert_eq!((settled.told.len(), again.unwrap().kind()), (1, ErrorKind::Busy));
    assert_eq!((queue.floor(), queue.len()), (0, 7), "what was refused is still there");
    let wrong = error("WRONGTYPE Operation against a key holding the wrong kind of value");
    let moved = error("READONLY You can't write against a read only replica.");
    let (settled, again) = settle(&mut queue, [wrong, Reply::Nil, moved, error(FULL)]);
    assert_eq!(
        settled.told.iter().map(|(number, told)| (*number, told.is_ok())).collect::<Vec<_>>(),
        [(2, false), (3, false)]
    );
    assert_eq!(again.unwrap().kind(), ErrorKind::Moved);
    assert_eq!((queue.floor(), queue.len()), (0, 5));
    assert_eq!(take(&mut queue, 10, &form), ["0", "4", "5", "6", "7"]);
    settle(&mut queue, (0..5).map(id));
    assert_eq!((queue.floor(), queue.next(), queue.len(), queue.waiting_bytes), (8, 8, 0, 0));
}

#[test]
fn only_what_was_on_its_way_may_be_written() {
    let form = form(false);
    let mut queue = queue(6);
    take(&mut queue, 2, &form);
    take(&mut queue, 2, &form);
    settle(&mut queue, [error(FULL), id(0), id(0)]);
    queue.lose();
    assert_eq!(take(&mut queue, 2, &form), ["0", "3"], "the order is that of accepting");
    let left: Vec<_> = queue.drain().into_iter().map(|(number, left)| (number, left.maybe_written)).collect();
    assert_eq!(left, [(0, true), (3, true), (4, false), (5, false)]);
    assert_eq!((queue.floor(), queue.waiting_bytes), (6, 0));
}

#[test]
fn a_refused_entry_is_not_one_that_may_be_written() {
    let form = form(false);
    let mut queue = queue(2);
    take(&mut queue, 2, &form);
    settle(&mut queue, [error(FULL)]);
    queue.lose();
    let left: Vec<_> = queue.drain().into_iter().map(|(number, left)| (number, left.maybe_written)).collect();
    assert_eq!(left, [(0, false), (1, true)]);
}

#[test]
fn no_more_is_written_than_an_idempotent_server_remembers() {
    let form = form(true);
    let mut queue = queue(1_000);
    let mut written = 0;
    while queue.may_take(100, &form) {
        written += take(&mut queue, 100, &form).len();
    }
    assert_eq!(written, 400);
    settle(&mut queue, (0..99).map(id));
    assert!(!queue.may_take(100, &form), "one of the first hundred is not settled");
    settle(&mut queue, [id(99)]);
    assert_eq!(take(&mut queue, 200, &form).len(), 100);
    assert!(!queue.may_take(100, &form));
}

#[test]
fn a_marked_entry_goes_through_the_script_and_may_turn_out_a_duplicate() {
    let form = form(true);
    let mut queue = Queue::new();
    for number in 0..4 {
        let marker = Marker { key: key(&format!("m{number}")), seconds: 300 };
        queue.push(entry(number.to_string()), Some(Box::new(marker)), number);
    }
    let commands = |queue: &mut Queue<u64>, loaded: bool| {
        let mut requests = Vec::new();
        queue.take(10, loaded, &form, &mut Out::Requests(&mut requests));
        requests.iter().map(crate::Request::command).collect::<Vec<_>>()
    };
    assert_eq!(commands(&mut queue, false), ["SCRIPT LOAD", "EVALSHA", "EVALSHA", "EVALSHA", "EVALSHA"]);
    let wrong = "@user_script: 30: WRONGTYPE Operation against a key holding the wrong kind of value";
    let gone = || error("NOSCRIPT No matching script.");
    assert!(settle(&mut queue, [Reply::Other]).0.loaded);
    let (settled, again) = settle(&mut queue, [id(0), Reply::Nil, gone(), error(wrong)]);
    assert_eq!(again.unwrap().kind(), ErrorKind::NoScript);
    let [(0, Ok(_)), (1, Err(PublishError::Duplicate)), (3, Err(PublishError::Failed(wrong)))] = &settled.told[..]
    else {
        panic!("{:?}", settled.told);
    };
    assert_eq!(wrong.kind(), ErrorKind::WrongType);
    assert_eq!((queue.len(), queue.floor()), (1, 2));
    assert_eq!(commands(&mut queue, false), ["SCRIPT LOAD", "EVALSHA"]);
    let refused = error("NOPERM User u has no permissions to run the 'script|load' command");
    let (settled, again) = settle(&mut queue, [refused, gone()]);
    let [(2, Err(PublishError::Failed(error)))] = &settled.told[..] else { panic!("{:?}", settled.told) };
    assert_eq!((error.kind(), again.is_none(), settled.loaded), (ErrorKind::NoPermission, true, false));
    queue.push(entry("4"), Some(Box::new(Marker { key: key("m"), seconds: 1 })), 4);
    assert_eq!(commands(&mut queue, true), ["EVALSHA"]);
}

#[test]
fn what_may_have_been_written_is_not_said_to_have_failed() {
    let form = form(false);
    let mut queue = Queue::new();
    queue.push(entry("0"), None, 0);
    let take = |queue: &mut Queue<u64>| queue.take(10, false, &form, &mut Out::Requests(&mut Vec::new()));
    take(&mut queue);
    queue.lose();
    queue.push(entry("1"), None, 1);
    take(&mut queue);
    let refused = || error("NOPERM User u has no permissions to run the 'xadd' command");
    let (settled, _) = settle(&mut queue, [refused(), refused()]);
    let [(0, Err(PublishError::InDoubt(_))), (1, Err(PublishError::Failed(_)))] = &settled.told[..] else {
        panic!("{:?}", settled.told);
    };
}

#[test]
fn an_error_that_only_waits_is_not_what_a_later_one_hides() {
    let form = form(false);
    let mut queue = Queue::new();
    (0..3).for_each(|n| queue.push(entry(n.to_string()), None, n));
    queue.take(10, false, &form, &mut Out::Requests(&mut Vec::new()));
    let lines = ["OOM command not allowed", "READONLY You can't write", "LOADING Redis is loading"];
    let (_, again) = settle(&mut queue, lines.map(error));
    assert_eq!(again.unwrap().kind(), crate::Error::from_server(crate::ServerError::parse(lines[1])).kind());
}
