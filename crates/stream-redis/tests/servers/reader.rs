//! A reader that a client opens, and connections that the server ends.

use std::future::poll_fn;
use std::time::Duration;

use stream_core::{EntryId, StreamKey};
use stream_redis::{Client, ErrorKind, ReadBatch, ReadFrom, ReadProgress, ReadRequest, Reader, Request};

use crate::support::{Server, servers};

async fn read(reader: &mut dyn Reader, batch: &mut ReadBatch) -> Result<ReadProgress, stream_redis::Error> {
    poll_fn(|cx| reader.poll_next(cx, batch)).await
}

#[tokio::test]
async fn readers_and_commands_over_the_same_options() {
    let key = StreamKey::new("s").unwrap();
    for folder in servers() {
        let mut server = Server::start(&folder, &["--unixsocket", "r.sock", "--requirepass", "p"]);
        let socket = server.socket();
        for url in [
            format!("redis://:p@127.0.0.1:{}/1", server.port),
            format!("redis://:p@127.0.0.1:{}/1?protocol=resp2", server.port),
            format!("redis+unix://{}?db=1&pass=p", socket.display()),
        ] {
            let client = Client::open(&url).unwrap();
            let connection = client.connector().connect(&key).await.unwrap();
            let mut reader = client.connector().open_reader(&key, "a reader").await.unwrap();
            let from = ReadFrom::After(EntryId::ZERO);
            reader.submit(&ReadRequest { key: key.clone(), from, count: 10, block: Some(Duration::from_secs(5)) });
            let add = Request::new("XADD").key(&key).arg("*").arg("a").arg("1");
            let mut batch = ReadBatch::default();
            let (added, progress) = tokio::join!(connection.call(&add), async {
                loop {
                    if let ReadProgress::Complete { total } = read(&mut *reader, &mut batch).await.unwrap() {
                        break total;
                    }
                }
            });
            added.unwrap();
            assert_eq!((progress, batch.entries[0].get("a")), (1, Some(&b"1"[..])), "{}: {url}", server.name);
            let listed = connection.call(&Request::new("CLIENT LIST")).await.unwrap();
            let listed = String::from_utf8_lossy(listed.as_bytes().unwrap()).into_owned();
            assert!(listed.contains("name=a-reader"), "{}: {listed}", server.name);
            connection.call(&Request::new("FLUSHALL")).await.unwrap();
        }
        let client = Client::open(&format!("redis://:p@127.0.0.1:{}/", server.port)).unwrap();
        let connection = client.connector().connect(&key).await.unwrap();
        let mut reader = client.connector().open_reader(&key, "r").await.unwrap();
        let from = ReadFrom::After(EntryId::ZERO);
        reader.submit(&ReadRequest { key: key.clone(), from, count: 10, block: Some(Duration::from_secs(5)) });
        let blocked = tokio::spawn(async move { read(&mut *reader, &mut ReadBatch::default()).await });
        // Proof that the connection works, and then that its end is told.
        connection.call(&Request::new("PING")).await.unwrap();
        server.kill();
        assert_eq!(blocked.await.unwrap().unwrap_err().kind(), ErrorKind::Io, "{}", server.name);
        let error = connection.call(&Request::new("PING")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{}: {error:?}", server.name);
        let Err(error) = client.connector().connect(&key).await else { panic!("connected") };
        assert_eq!(error.kind(), ErrorKind::Io, "{}: {error:?}", server.name);
    }
}
