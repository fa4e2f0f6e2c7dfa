//! Random replies in random pieces, and noise.

use proptest::prelude::*;

use super::*;

/// An entry as the server lists it: its fields unless it was deleted, idle time and count where it was claimed.
type Listed = (EntryId, Option<Vec<(Vec<u8>, Vec<u8>)>>, Option<(u32, u8)>);

/// A reply as a value: what the server sends and what must come out.
#[derive(Debug, Clone)]
enum Reply {
    Nil(&'static str),
    Refused(String),
    Entries { resp3: bool, list: Vec<Listed> },
}

impl Reply {
    fn encode(&self, out: &mut Vec<u8>) {
        let bulk = |text: &[u8], out: &mut Vec<u8>| {
            out.extend_from_slice(format!("${}\r\n", text.len()).as_bytes());
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        };
        match self {
            Self::Nil(text) => out.extend_from_slice(text.as_bytes()),
            Self::Refused(text) => out.extend_from_slice(format!("-ERR {text}\r\n").as_bytes()),
            Self::Entries { resp3, list } => {
                out.extend_from_slice(if *resp3 { b"%1\r\n" } else { b"*1\r\n*2\r\n" });
                bulk(b"stream", out);
                out.extend_from_slice(format!("*{}\r\n", list.len()).as_bytes());
                for (id, fields, claimed) in list {
                    out.extend_from_slice(if claimed.is_some() { b"*4\r\n" } else { b"*2\r\n" });
                    bulk(id.to_string().as_bytes(), out);
                    match fields {
                        None => out.extend_from_slice(if *resp3 { b"_\r\n" } else { b"*-1\r\n" }),
                        Some(fields) => {
                            out.extend_from_slice(format!("*{}\r\n", 2 * fields.len()).as_bytes());
                            for (name, value) in fields {
                                bulk(name, out);
                                bulk(value, out);
                            }
                        }
                    }
                    if let Some((idle, count)) = claimed {
                        out.extend_from_slice(format!(":{idle}\r\n:{count}\r\n").as_bytes());
                    }
                }
            }
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Nil(_) => entries([]),
            Self::Refused(text) => Outcome::Refused(format!("XREADGROUP s: ERR {text}")),
            Self::Entries { list, .. } => {
                let found = list.iter().filter_map(|(id, fields, _)| Some(Entry::new(*id, fields.clone()?).unwrap()));
                let deleted = list.iter().filter(|(_, fields, _)| fields.is_none()).map(|(id, ..)| *id);
                Outcome::Entries(found.collect(), deleted.collect())
            }
        }
    }
}

fn reply() -> impl Strategy<Value = Reply> {
    let text = || prop::collection::vec(any::<u8>(), 0..40);
    let fields = prop::option::weighted(0.9, prop::collection::vec((text(), text()), 0..5));
    let id = any::<(u64, u64)>().prop_map(|(ms, seq)| EntryId::new(ms, seq));
    let list = prop::collection::vec((id, fields, prop::option::of(any::<(u32, u8)>())), 0..8);
    prop_oneof![
        1 => prop::sample::select(vec!["*-1\r\n", "$-1\r\n", "_\r\n"]).prop_map(Reply::Nil),
        1 => "[a-z]{0,20}".prop_map(Reply::Refused),
        6 => (any::<bool>(), list).prop_map(|(resp3, list)| Reply::Entries { resp3, list }),
    ]
}

fn paused() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// Feeds noise until the reader gives up or the noise ends, and holds it to what it may allocate.
fn check_noise(bytes: &[u8], splits: &[usize]) -> Result<(), TestCaseError> {
    let runtime = paused();
    let _guard = runtime.enter();
    let mut reader = SocketReader::new(Pieces::new(bytes, splits, false), MARGIN);
    (0..3).for_each(|_| reader.submit(&read()));
    let mut batch = ReadBatch::default();
    while let Poll::Ready(Ok(_)) = reader.poll_next(&mut Context::from_waker(Waker::noop()), &mut batch) {}
    prop_assert!(reader.buffer.capacity() <= LARGEST);
    prop_assert!(batch.entries.len() + batch.deleted.len() <= bytes.len());
    Ok(())
}

proptest! {
    #[test]
    fn any_replies_in_any_pieces_come_out_as_they_went_in(
        replies in prop::collection::vec(reply(), 1..6),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
        pauses: bool,
    ) {
        let mut bytes = Vec::new();
        for reply in &replies {
            reply.encode(&mut bytes);
        }
        let mut splits: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        splits.sort_unstable();
        let got = paused().block_on(outcomes(&bytes, &splits, pauses, replies.len())).unwrap();
        let expected: Vec<_> = replies.iter().map(Reply::outcome).collect();
        prop_assert_eq!(got, expected);
    }

    #[test]
    fn noise_never_panics_and_never_allocates_much(
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            prop::collection::vec(prop::sample::select(b"*$%>:_+-!=~|(#,0123456789\r\n".to_vec()), 0..300),
            prop::collection::vec(prop::sample::select(vec![
                "*1\r\n", "*2\r\n", "%1\r\n", "$1\r\n", "s\r\n", "$3\r\n", "1-0\r\n", "*-1\r\n", "_\r\n", ">2\r\n", "*4\r\n",
                ":1\r\n", "+x\r\n", "|1\r\n", "$0\r\n", "\r\n", "*99999999\r\n", "$99999999\r\n", "-E\r\n", "!1\r\n",
            ]), 0..60).prop_map(|words| words.concat().into_bytes()),
        ],
        step in 1_usize..50,
    ) {
        let splits: Vec<_> = (step..bytes.len().max(step)).step_by(step).collect();
        check_noise(&bytes, &splits)?;
    }

    #[test]
    fn damaged_replies_never_panic(
        replies in prop::collection::vec(reply(), 1..4),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        step in 1_usize..50,
    ) {
        let mut bytes = Vec::new();
        for reply in &replies {
            reply.encode(&mut bytes);
        }
        for (place, byte) in damage {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let splits: Vec<_> = (step..bytes.len().max(step)).step_by(step).collect();
        check_noise(&bytes, &splits)?;
    }
}
