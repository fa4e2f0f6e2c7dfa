//! The rest of a reply: told when it is there, once, and to nobody who could not use it.

use super::*;

/// An `XREAD`.
fn follow(after: u64) -> ReadRequest {
    ReadRequest { from: ReadFrom::After(id(after, 0)), count: 20, ..read() }
}

/// A reply with the entries `first` to `first + count - 1`, each with a value of this many bytes.
fn reply(first: u64, count: u64, value: usize) -> String {
    let one = |n: u64| {
        let id = format!("{n}-0");
        format!("*2\r\n${}\r\n{id}\r\n*2\r\n$1\r\na\r\n${value}\r\n{}\r\n", id.len(), "v".repeat(value))
    };
    format!("*1\r\n*2\r\n$1\r\ns\r\n*{count}\r\n{}", (first..first + count).map(one).collect::<String>())
}

fn ids(batch: &ReadBatch) -> Vec<u64> {
    batch.entries.iter().map(|entry| entry.id().ms()).collect()
}

#[tokio::test(start_paused = true)]
async fn it_is_told_before_it_is_handed_out_and_the_next_read_leaves_meanwhile() {
    for value in [0, 1, 300] {
        let (mut server, stream) = duplex(1 << 16);
        let mut reader = SocketReader::new(stream, MARGIN);
        reader.submit(&follow(0));
        let first = reply(1, 20, value);
        server.write_all(first.as_bytes()).await.unwrap();
        let mut batch = ReadBatch::default();
        assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Partial);
        assert_eq!(ids(&batch), [1]);
        // Behind the last byte of the first value comes its line end, and then the rest.
        let bytes = first.len() - first.find("*2\r\n$3\r\n2-0").unwrap() + 2;
        assert_eq!(reader.rest(), Some(Rest { last: id(20, 0), entries: 19, bytes: bytes - 2, total: 20 }));
        reader.submit(&follow(20));
        assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Complete { total: 20 });
        assert_eq!((ids(&batch), reader.rest()), ((1..=20).collect(), None));
        // Both reads are there although the second reply is awaited only now.
        let mut expected = Vec::new();
        for read in [follow(0), follow(20)] {
            encode::encode(&read, &mut expected);
        }
        let mut got = vec![0; expected.len()];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(got, expected);
        server.write_all(reply(21, 20, value).as_bytes()).await.unwrap();
        assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Partial);
        assert_eq!(reader.rest().unwrap().last, id(40, 0));
        // Who does not go on is told once, and gets the rest.
        assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Complete { total: 20 });
        assert_eq!((ids(&batch), reader.rest()), ((1..=40).collect(), None));
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_not_told_where_it_is_short_or_of_a_group_or_the_next_read_is_under_way() {
    for (reads, entries) in [(vec![follow(0)], 16), (vec![read()], 20), (vec![follow(0), follow(20)], 20)] {
        let (mut server, stream) = duplex(1 << 16);
        let mut reader = SocketReader::new(stream, MARGIN);
        for read in &reads {
            reader.submit(read);
        }
        server.write_all(reply(1, entries, 5).as_bytes()).await.unwrap();
        let mut batch = ReadBatch::default();
        let total = entries as usize;
        assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Complete { total }, "{reads:?}");
        assert_eq!(reader.rest(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn however_a_reply_is_cut_it_is_told_only_of_what_is_there_and_every_entry_comes_once() {
    let bytes = reply(1, 40, 3);
    let told_from = bytes.find("*2\r\n$4\r\n25-0").unwrap();
    for cut in 1..bytes.len() {
        let mut reader = SocketReader::new(Pieces::new(bytes.as_bytes(), &[cut], true), MARGIN);
        reader.submit(&follow(0));
        let mut batch = ReadBatch::default();
        let mut told = Vec::new();
        loop {
            let progress = next(&mut reader, &mut batch).await.unwrap();
            if let Some(rest) = reader.rest() {
                assert_eq!((rest.last, rest.total), (id(40, 0), 40));
                assert_eq!(rest.entries + batch.entries.len(), 40);
                told.push(rest);
            }
            if progress == (ReadProgress::Complete { total: 40 }) {
                break;
            }
        }
        assert_eq!(ids(&batch), (1..=40).collect::<Vec<_>>(), "cut at {cut}");
        assert_eq!(told.len(), usize::from(cut < told_from), "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_here_is_handed_out_although_the_next_read_cannot_be_written() {
    let (mut server, stream) = duplex(1 << 16);
    let mut reader = SocketReader::new(stream, MARGIN);
    reader.submit(&follow(0));
    server.write_all(reply(1, 20, 5).as_bytes()).await.unwrap();
    let mut batch = ReadBatch::default();
    assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Partial);
    drop(server);
    reader.submit(&follow(20));
    assert_eq!(next(&mut reader, &mut batch).await.unwrap(), ReadProgress::Complete { total: 20 });
    assert_eq!(ids(&batch), (1..=20).collect::<Vec<_>>());
    next(&mut reader, &mut batch).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn entries_keep_their_fields_and_their_order_however_many_are_taken_apart_at_once() {
    // One is deleted, one has three elements, the others have up to four fields: whole ones come in runs of every length.
    let entry = |n: u64, odd: u64| {
        let id = format!("${}\r\n{n}-0\r\n", format!("{n}-0").len());
        let fields = (0..n % 5).map(|field| format!("$1\r\n{field}\r\n$3\r\n{n:03}\r\n"));
        let fields = fields.collect::<Vec<_>>().concat();
        match n {
            _ if n == odd => format!("*2\r\n{id}*-1\r\n"),
            _ if n == odd + 1 => format!("*3\r\n{id}*{}\r\n{fields}:7\r\n", n % 5 * 2),
            _ => format!("*2\r\n{id}*{}\r\n{fields}", n % 5 * 2),
        }
    };
    let count = 150;
    for odd in [1, 2, 30, 64, 65, 66, 129, count - 1, count, count + 1] {
        let entries: String = (1..=count).map(|n| entry(n, odd)).collect();
        let bytes = format!("*1\r\n*2\r\n$1\r\ns\r\n*{count}\r\n{entries}");
        for (read, cut) in [(read(), 0), (follow(0), 0), (read(), 1_500), (follow(0), 1_500), (follow(0), 3_000)] {
            let mut reader = SocketReader::new(Pieces::new(bytes.as_bytes(), &[cut.max(1)], true), MARGIN);
            reader.submit(&read);
            let mut batch = ReadBatch::default();
            while next(&mut reader, &mut batch).await.unwrap() == ReadProgress::Partial {
                let Some(rest) = reader.rest() else { continue };
                assert_eq!((rest.last, rest.total), (id(count, 0), count as usize));
                assert_eq!(rest.entries + batch.entries.len() + batch.deleted.len(), count as usize);
            }
            let expected: Vec<u64> = (1..=count).filter(|n| *n != odd).collect();
            assert_eq!(ids(&batch), expected, "odd {odd}, cut at {cut}");
            assert_eq!(batch.deleted.len(), usize::from(odd <= count));
            for entry in &batch.entries {
                let n = entry.id().ms();
                let fields = (0..n % 5).map(|field| (field.to_string().into_bytes(), format!("{n:03}").into_bytes()));
                assert!(entry.fields().map(|(name, value)| (name.to_vec(), value.to_vec())).eq(fields), "{n}");
            }
        }
    }
}
