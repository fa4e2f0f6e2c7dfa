//! The proxy itself, between a client and a server that sends back what it gets.
//!
//! Where something must not arrive, nothing can be waited for but a moment; a slow machine makes such a look weaker, never
//! wrong.

use std::time::Instant;

use tokio::time::timeout;

use super::*;

const MOMENT: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(20);

/// A server that sends back what it gets, and notes it.
struct Echo {
    address: String,
    got: Arc<Mutex<Vec<u8>>>,
    task: JoinHandle<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let got = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&got);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let noted = Arc::clone(&noted);
                tokio::spawn(async move {
                    let mut buffer = [0; 4096];
                    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                        lock(&noted).extend_from_slice(&buffer[..length]);
                        if stream.write_all(&buffer[..length]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self { address, got, task }
    }

    async fn gets(&self, expected: &[u8]) {
        crate::eventually(SOON, format!("the server to get {} bytes", expected.len()), || {
            std::future::ready((*lock(&self.got) == expected).then_some(()))
        })
        .await;
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn both() -> (Echo, Proxy) {
    let echo = Echo::start().await;
    let proxy = Proxy::start(echo.address.clone()).await.unwrap();
    (echo, proxy)
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect(proxy.address).await.unwrap()
}

async fn says(client: &mut TcpStream, words: &[u8]) {
    client.write_all(words).await.unwrap();
}

async fn hears(client: &mut TcpStream, expected: &[u8]) {
    let mut heard = vec![0; expected.len()];
    timeout(SOON, client.read_exact(&mut heard)).await.expect("an answer").unwrap();
    assert_eq!(heard, expected);
}

async fn hears_nothing(client: &mut TcpStream) {
    assert!(timeout(MOMENT, client.read_u8()).await.is_err());
}

/// The other side is gone. What was not read may make that a reset.
async fn ends(client: &mut TcpStream) {
    assert!(matches!(timeout(SOON, client.read_u8()).await, Ok(Err(_))), "it goes on");
}

#[tokio::test]
async fn what_passes_is_what_was_sent_and_connections_are_counted() {
    let (_echo, proxy) = both().await;
    let mut clients = [connect(&proxy).await, connect(&proxy).await];
    for client in &mut clients {
        says(client, b"hello").await;
        hears(client, b"hello").await;
    }
    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
    proxy.cut();
    for client in &mut clients {
        ends(client).await;
    }
    let mut client = connect(&proxy).await;
    says(&mut client, b"again").await;
    hears(&mut client, b"again").await;
    assert_eq!((proxy.accepted(), proxy.open()), (3, 1));
}

#[tokio::test]
async fn what_is_stalled_arrives_when_that_is_over() {
    let (echo, proxy) = both().await;
    let mut client = connect(&proxy).await;
    says(&mut client, b"a").await;
    hears(&mut client, b"a").await;
    proxy.set(Mode::Stall);
    says(&mut client, b"b").await;
    hears_nothing(&mut client).await;
    echo.gets(b"a").await;
    proxy.set(Mode::StallReplies);
    echo.gets(b"ab").await;
    hears_nothing(&mut client).await;
    proxy.set(Mode::Forward);
    hears(&mut client, b"b").await;
}

#[tokio::test]
async fn where_answers_are_swallowed_a_connection_is_deaf_for_good() {
    let (echo, proxy) = both().await;
    let mut client = connect(&proxy).await;
    says(&mut client, b"a").await;
    hears(&mut client, b"a").await;
    proxy.set(Mode::SwallowReplies);
    says(&mut client, b"b").await;
    echo.gets(b"ab").await;
    hears_nothing(&mut client).await;
    proxy.set(Mode::Forward);
    says(&mut client, b"c").await;
    echo.gets(b"abc").await;
    hears_nothing(&mut client).await;
    let mut other = connect(&proxy).await;
    says(&mut other, b"d").await;
    hears(&mut other, b"d").await;
}

#[tokio::test]
async fn slow_is_late_and_whole() {
    let words = vec![b'x'; 2_000];
    // Each way takes a fifth of a second. Of what is throttled, the second way begins with the first part, and the last part has
    // arrived before its time is over.
    for (mode, least) in [(Mode::Delay(Duration::from_millis(200)), 400), (Mode::Throttle(10_000), 150)] {
        let (_echo, proxy) = both().await;
        proxy.set(mode);
        let mut client = connect(&proxy).await;
        let began = Instant::now();
        says(&mut client, &words).await;
        let mut first = [0; 2_000];
        let length = timeout(SOON, client.read(&mut first)).await.unwrap().unwrap();
        hears(&mut client, &words[length..]).await;
        assert!(began.elapsed() >= Duration::from_millis(least), "{mode:?}: {:?}", began.elapsed());
        if matches!(mode, Mode::Throttle(_)) {
            assert!(length < 2_000, "it arrives in parts");
        }
    }
}

#[tokio::test]
async fn refused_connections_end_at_once_and_others_go_on() {
    let (_echo, proxy) = both().await;
    let mut before = connect(&proxy).await;
    says(&mut before, b"a").await;
    hears(&mut before, b"a").await;
    proxy.set(Mode::Refuse);
    ends(&mut connect(&proxy).await).await;
    says(&mut before, b"b").await;
    hears(&mut before, b"b").await;
    proxy.set(Mode::Forward);
    let mut after = connect(&proxy).await;
    says(&mut after, b"c").await;
    hears(&mut after, b"c").await;
}

#[tokio::test]
async fn a_connection_is_cut_at_the_word_and_no_other_is() {
    for (moment, got, heard) in [
        (Moment::BeforeRequest, "", ""),
        (Moment::BeforeReply, "the word", ""),
        (Moment::InsideReply, "the word", "the "),
    ] {
        let (echo, proxy) = both().await;
        let (mut other, mut client) = (connect(&proxy).await, connect(&proxy).await);
        proxy.cut_at("word", moment);
        says(&mut client, b"the word").await;
        hears(&mut client, heard.as_bytes()).await;
        ends(&mut client).await;
        echo.gets(got.as_bytes()).await;
        assert_eq!(proxy.cuts(), 1, "{moment:?}");
        // Once.
        says(&mut other, b"the word").await;
        hears(&mut other, b"the word").await;
    }
}

#[tokio::test]
async fn a_connection_is_half_open_from_the_word_on() {
    for (silence, got) in [(Silence::Both, "a"), (Silence::Replies, "aword")] {
        let (echo, proxy) = both().await;
        let mut client = connect(&proxy).await;
        says(&mut client, b"a").await;
        hears(&mut client, b"a").await;
        proxy.silence_at("word", silence);
        says(&mut client, b"word").await;
        hears_nothing(&mut client).await;
        echo.gets(got.as_bytes()).await;
        assert_eq!((proxy.cuts(), proxy.open()), (1, 1), "{silence:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn spells_come_one_after_the_other_and_calm_is_between_them() {
    let proxy = Proxy::start("127.0.0.1:1").await.unwrap();
    let mut mode = proxy.shared.mode.subscribe();
    let spells: Vec<Spell> = Weather::new(3).take(20).collect();
    let seen = async {
        let mut seen = Vec::new();
        while seen.len() < 2 * spells.len() {
            mode.changed().await.unwrap();
            seen.push(*mode.borrow_and_update());
        }
        seen
    };
    let began = tokio::time::Instant::now();
    let ((), seen) = tokio::join!(proxy.play(spells.clone(), Duration::from_secs(1)), seen);
    let expected: Vec<Mode> = spells.iter().flat_map(|spell| [spell.mode, Mode::Forward]).collect();
    assert_eq!(seen, expected);
    let lasts: Duration = spells.iter().map(|spell| spell.lasts + Duration::from_secs(1)).sum();
    assert_eq!(began.elapsed().as_secs(), lasts.as_secs());
}
