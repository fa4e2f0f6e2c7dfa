//! The publisher against a connector that is played by the test, on paused time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::*;
use crate::{Connection, Connector, Reader, Request, ServerError, Value};

/// What becomes of one batch.
#[derive(Debug, Clone)]
enum Fate {
    /// Every entry is written.
    Written,
    /// Every entry gets this error.
    Refused(&'static str),
    /// Written, and the reply is lost.
    Lost,
}

/// A server that writes down what it is sent. `gate` lets that many batches through.
#[derive(Debug)]
struct Model {
    fates: Mutex<Vec<Fate>>,
    batches: Mutex<Vec<Vec<String>>>,
    connections: AtomicUsize,
    refusals: Mutex<Vec<ErrorKind>>,
    gate: Semaphore,
    idempotent: bool,
}

impl Model {
    fn new(fates: impl IntoIterator<Item = Fate>) -> Arc<Self> {
        Arc::new(Self {
            fates: Mutex::new(fates.into_iter().collect()),
            batches: Mutex::default(),
            connections: AtomicUsize::new(0),
            refusals: Mutex::default(),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            idempotent: false,
        })
    }

    fn batches(&self) -> Vec<usize> {
        self.batches.lock().unwrap().iter().map(Vec::len).collect()
    }

    fn written(&self) -> Vec<String> {
        self.batches.lock().unwrap().concat()
    }
}

#[derive(Debug, Clone)]
struct Handle(Arc<Model>);

#[async_trait]
impl Connector for Handle {
    async fn connect(&self, _: &StreamKey) -> Result<Arc<dyn Connection>, Error> {
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        match self.0.refusals.lock().unwrap().pop() {
            Some(kind) => Err(Error::new(kind, "refused")),
            None => Ok(Arc::new(self.clone())),
        }
    }

    async fn open_reader(&self, _: &StreamKey, _: &str) -> Result<Box<dyn Reader>, Error> {
        Err(Error::new(ErrorKind::Unsupported, "nobody reads here"))
    }
}

#[async_trait]
impl Connection for Handle {
    async fn send(&self, requests: &[Request]) -> Result<Vec<Result<Value, ServerError>>, Error> {
        let words = |request: &Request| {
            request.args().map(|arg| String::from_utf8_lossy(arg).into_owned()).collect::<Vec<_>>().join(" ")
        };
        let batch: Vec<String> = requests.iter().map(words).collect();
        if batch[0].contains("NOMKSTREAM IDMP") {
            let detail = if self.0.idempotent { "wrong number of arguments" } else { "Invalid stream ID" };
            return Ok(vec![Err(ServerError { code: "ERR".into(), detail: detail.into() })]);
        }
        self.0.gate.acquire().await.unwrap().forget();
        let mut fates = self.0.fates.lock().unwrap();
        let fate = if fates.is_empty() { Fate::Written } else { fates.remove(0) };
        let ids = (0..batch.len()).map(|number| Ok(Value::bulk(format!("1-{number}")))).collect();
        match fate {
            Fate::Refused(line) => return Ok(batch.iter().map(|_| Err(ServerError::parse(line))).collect()),
            Fate::Written | Fate::Lost => self.0.batches.lock().unwrap().push(batch),
        }
        if let Fate::Lost = fate { Err(Error::new(ErrorKind::Io, "the connection is gone")) } else { Ok(ids) }
    }
}

fn builder(model: &Arc<Model>) -> PublisherBuilder {
    Publisher::builder(&Client::from_connector(Handle(model.clone()))).stream("s")
}

async fn publish_all(publisher: &Publisher, numbers: std::ops::Range<u32>) -> Vec<Result<EntryId, PublishError>> {
    join_all(numbers.map(|number| publisher.publish([("n", number.to_string())]))).await
}

#[tokio::test(start_paused = true)]
async fn what_comes_together_goes_in_one_pipeline() {
    let model = Model::new([]);
    let publisher = builder(&model).batch(10).build().unwrap();
    let published = publish_all(&publisher, 0..25).await;
    assert!(published.iter().all(Result::is_ok));
    assert_eq!(model.batches(), [10, 10, 5]);
    let expected: Vec<_> = (0..25).map(|number| format!("XADD s * n {number}")).collect();
    assert_eq!(model.written(), expected);
    assert_eq!(model.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lingering_batch_is_complete_or_late_or_flushed() {
    let model = Model::new([]);
    let publisher = builder(&model).batch(3).linger(Duration::from_secs(1)).build().unwrap();
    let first = publisher.enqueue([("n", "0")]).await.unwrap();
    let second = publisher.enqueue([("n", "1")]).await.unwrap();
    let begun = tokio::time::Instant::now();
    first.confirmed().await.unwrap();
    second.confirmed().await.unwrap();
    assert_eq!(begun.elapsed().as_secs(), 1);
    let begun = tokio::time::Instant::now();
    publish_all(&publisher, 2..5).await;
    let _receipt = publisher.enqueue([("n", "5")]).await.unwrap();
    publisher.flush().await;
    assert!(begun.elapsed().is_zero());
    assert_eq!(model.batches(), [2, 3, 1]);
    assert_eq!(publisher.unconfirmed(), 0);
}

#[tokio::test(start_paused = true)]
async fn publishing_waits_for_room() {
    let mut model = Model::new([]);
    Arc::get_mut(&mut model).unwrap().gate = Semaphore::new(0);
    let publisher = builder(&model).buffer(2).build().unwrap();
    let first = publisher.enqueue([("n", "0")]).await.unwrap();
    let _second = publisher.enqueue([("n", "1")]).await.unwrap();
    let mut third = std::pin::pin!(publisher.enqueue([("n", "2")]));
    assert!(tokio::time::timeout(Duration::from_hours(1), third.as_mut()).await.is_err());
    assert_eq!(publisher.unconfirmed(), 2);
    model.gate.add_permits(10);
    third.await.unwrap().confirmed().await.unwrap();
    first.confirmed().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_reply_was_lost_is_written_again() {
    let model = Model::new([Fate::Lost]);
    let publisher = builder(&model).build().unwrap();
    assert!(publish_all(&publisher, 0..2).await.iter().all(Result::is_ok));
    assert_eq!(model.written(), ["XADD s * n 0", "XADD s * n 1"].repeat(2));
    assert_eq!(model.connections.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_server_is_told_what_it_may_have_seen() {
    let mut model = Model::new([Fate::Lost]);
    Arc::get_mut(&mut model).unwrap().idempotent = true;
    let publisher = builder(&model).batch(5000).build().unwrap();
    assert!(publish_all(&publisher, 0..150).await.iter().all(Result::is_ok));
    assert_eq!(model.batches(), [100, 100, 50]);
    let batches = model.batches.lock().unwrap().clone();
    assert_eq!(batches[0], batches[1]);
    assert!(batches[0][7].starts_with("XADD s IDMP ") && batches[0][7].ends_with(" 7 * n 7"), "{}", batches[0][7]);
    let plain = builder(&model).idempotent(false).build().unwrap();
    plain.publish([("n", "0")]).await.unwrap();
    assert_eq!(model.written().last().unwrap(), "XADD s * n 0");
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_waited_for_on_the_same_connection() {
    let busy = Fate::Refused("OOM command not allowed when used memory > 'maxmemory'.");
    let model = Model::new([busy.clone(), busy]);
    let publisher = builder(&model).build().unwrap();
    assert!(publish_all(&publisher, 0..2).await.iter().all(Result::is_ok));
    assert_eq!((model.batches(), model.connections.load(Ordering::Relaxed)), (vec![2], 1));
    let demoted = Fate::Refused("READONLY You can't write against a read only replica.");
    *model.fates.lock().unwrap() = vec![demoted];
    publisher.publish([("n", "2")]).await.unwrap();
    assert_eq!(model.connections.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn what_will_never_work_fails_with_the_reason() {
    let model = Model::new([Fate::Refused("WRONGTYPE Operation against a key holding the wrong kind of value")]);
    let publisher = builder(&model).build().unwrap();
    let Err(PublishError::Failed(error)) = publisher.publish([("n", "0")]).await else { panic!("published") };
    assert_eq!(
        (error.kind(), error.command(), error.key().unwrap().as_bytes()),
        (ErrorKind::WrongType, Some("XADD"), &b"s"[..])
    );
    // The next is tried anew.
    publisher.publish([("n", "1")]).await.unwrap();
    let none: [(&str, &str); 0] = [];
    assert!(matches!(publisher.publish(none).await, Err(PublishError::NoFields)));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_waited_for_and_one_that_refuses_us_is_not() {
    let model = Model::new([]);
    model.refusals.lock().unwrap().extend([ErrorKind::Io, ErrorKind::Timeout, ErrorKind::TooManyClients]);
    let publisher = builder(&model).build().unwrap();
    publisher.publish([("n", "0")]).await.unwrap();
    assert_eq!(model.connections.load(Ordering::Relaxed), 4);
    let model = Model::new([]);
    model.refusals.lock().unwrap().push(ErrorKind::Authentication);
    let publisher = builder(&model).build().unwrap();
    let published = publish_all(&publisher, 0..3).await;
    for published in published {
        let Err(PublishError::Failed(error)) = published else { panic!("published") };
        assert_eq!(error.kind(), ErrorKind::Authentication);
    }
    publisher.publish([("n", "3")]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn closing_hands_back_what_was_not_confirmed() {
    let mut model = Model::new([]);
    Arc::get_mut(&mut model).unwrap().gate = Semaphore::new(1);
    let publisher = builder(&model).batch(2).build().unwrap();
    let mut receipts = Vec::new();
    for number in 0..5 {
        receipts.push(publisher.enqueue([("n", number.to_string())]).await.unwrap());
    }
    let waiting = publisher.publish([("n", "5")]);
    let (left, waited) = tokio::join!(publisher.close(Duration::from_secs(1)), waiting);
    let left: Vec<_> = left
        .iter()
        .map(|left| (String::from_utf8_lossy(left.entry.get("n").unwrap()).into_owned(), left.maybe_written))
        .collect();
    assert_eq!(left, [("2".to_owned(), true), ("3".to_owned(), true), ("4".to_owned(), false)]);
    assert!(matches!(waited, Err(PublishError::Closed)));
    let told = join_all(receipts.into_iter().map(Receipt::confirmed)).await;
    assert_eq!(told.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, false, false]);
    assert!(matches!(publisher.publish([("n", "6")]).await, Err(PublishError::Closed)));
    assert!(publisher.close(Duration::ZERO).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn dropping_it_tells_those_who_wait() {
    let mut model = Model::new([]);
    Arc::get_mut(&mut model).unwrap().gate = Semaphore::new(0);
    let publisher = builder(&model).build().unwrap();
    let receipt = publisher.enqueue([("n", "0")]).await.unwrap();
    drop(publisher);
    assert!(matches!(receipt.confirmed().await, Err(PublishError::Closed)));
}

#[tokio::test]
async fn settings_out_of_range_are_refused() {
    let model = Model::new([]);
    let client = Client::from_connector(Handle(model.clone()));
    let about = Precision::Approximate { limit: None };
    let microseconds = EntryId::new(1_700_000_000_000_000, 0);
    for wrong in [
        Publisher::builder(&client),
        Publisher::builder(&client).stream(""),
        builder(&model).batch(0),
        builder(&model).batch(10_001),
        builder(&model).buffer(0),
        builder(&model).linger(Duration::from_secs(11)),
        builder(&model).max_len(0, Precision::Exact),
        builder(&model).max_len(0, about),
        builder(&model).min_id(EntryId::MAX, Precision::Exact),
        builder(&model).min_id(microseconds, about),
    ] {
        let text = format!("{wrong:?}");
        assert_eq!(wrong.build().unwrap_err().kind(), ErrorKind::Config, "{text}");
    }
    let partitions = Partitions::new("s", 2).unwrap();
    let partitioned = Publisher::builder(&client).partitions(&partitions).max_len(0, about);
    assert_eq!(partitioned.check().unwrap_err().kind(), ErrorKind::Config);
    assert_eq!(partitioned.build_partitioned().unwrap_err().kind(), ErrorKind::Config);
    for right in [builder(&model).max_len(1, about), builder(&model).min_id(EntryId::ZERO, Precision::Exact)] {
        right.check().unwrap();
    }
}
