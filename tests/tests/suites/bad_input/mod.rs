//! Every wrong setting is refused where it is given, at `build()` or `Client::open()`, with what, where and what to do; and
//! the password is in no text.

use std::time::Duration;

use stream_testkit::{MemoryServer, ServerOptions};
use streamkeeper::{Client, ConnectOptions, Consumer, DurableBuilder, ErrorKind, RetryPolicy};
use streamkeeper_tests::{Ask, on_each_own, start};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_hours(24);
const PASSWORD: &str = "hunter2";

/// The whole text of an error: what it says, what caused it, and what it shows to those who debug.
fn text_of(error: &(dyn std::error::Error + 'static)) -> (String, String) {
    let mut all = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        all = format!("{all} {error} {error:?}");
        cause = error.source();
    }
    (error.to_string(), all)
}

fn builder() -> DurableBuilder {
    Consumer::durable(&MemoryServer::new().client())
}

fn check(change: impl FnOnce(DurableBuilder) -> DurableBuilder, expected: &str) {
    let error = change(builder().stream("orders").group("billing")).build().expect_err(expected);
    assert_eq!(error.to_string(), expected);
}

#[test]
fn names_that_cannot_be_are_refused() {
    check(|builder| builder.stream(""), "the stream key is empty: give it at least one byte");
    check(|builder| builder.group(""), "the group name is empty: give it at least one byte");
    check(|builder| builder.consumer(""), "the consumer name is empty: give it at least one byte");
    check(
        |builder| builder.dead_letter(""),
        "dead_letter is empty: give the key of a stream, or leave it out for the stream's key and `:dead`",
    );
    check(|builder| builder.stream("orders"), "stream is orders: it is named twice; name each stream once");
    check(
        |builder| builder.dead_letter("orders"),
        "stream and dead_letter contradict each other: dead letters would be consumed as if they were new; name another \
         stream for them",
    );
    let error = builder().group("billing").build().unwrap_err();
    assert_eq!(error.to_string(), "stream is missing: name the stream to read with `.stream(..)`");
    let error = builder().stream("orders").build().unwrap_err();
    assert_eq!(error.to_string(), "group is missing: name the consumer group with `.group(..)`");
}

#[test]
fn a_dead_letter_stream_by_default_is_not_one_that_is_read() {
    check(
        |builder| builder.stream("orders:dead"),
        "stream and dead_letter contradict each other: dead letters would be consumed as if they were new; name another \
         stream for them",
    );
}

#[test]
fn numbers_out_of_range_are_refused() {
    check(|builder| builder.concurrency(0), "concurrency is 0: at least one handler must be able to run");
    check(|builder| builder.concurrency(1_000_001), "concurrency is 1000001: at most 1,000,000");
    check(|builder| builder.prefetch(1_000_001), "prefetch is 1000001: at most 1,000,000");
    check(|builder| builder.prefetch_bytes(0), "prefetch_bytes is 0: at least one byte, or nothing can be read");
    check(|builder| builder.max_waiting(0), "max_waiting is 0: at least one entry must be able to wait for its retry");
    check(|builder| builder.dead_letter_max(0), "dead_letter_max is 0: at least 1, or leave it out for no bound");
    check(
        |builder| builder.retry(RetryPolicy::immediate().max_attempts(0)),
        "the retry policy's max_attempts is 0, so that nothing would ever be handled: set it to at least 1",
    );
}

#[test]
fn times_out_of_range_are_refused() {
    let block = "from 1 ms to 60 s: zero would wait for ever, and a long wait hides a deleted stream";
    check(|builder| builder.block(Duration::ZERO), &format!("block is 0ns: {block}"));
    check(|builder| builder.block(MS.checked_sub(MS / 1_000).unwrap()), &format!("block is 999µs: {block}"));
    check(|builder| builder.block(60 * SECOND + MS), &format!("block is 60.001s: {block}"));
    check(|builder| builder.lease(299 * MS), "the lease is 299ms, below the least allowed 300ms: raise it");
    check(|builder| builder.lease(Duration::ZERO), "the lease is 0ns, below the least allowed 300ms: raise it");
    check(|builder| builder.lease(DAY + MS), "the lease is 86400.001s, above the greatest allowed 86400s: lower it");
    check(|builder| builder.claim_every(9 * MS), "claim_every is 9ms: from 10 ms to 24 h");
    check(|builder| builder.claim_every(Duration::ZERO), "claim_every is 0ns: from 10 ms to 24 h");
    check(|builder| builder.claim_every(DAY + MS), "claim_every is 86400.001s: from 10 ms to 24 h");
    check(|builder| builder.timeout(Duration::ZERO), "timeout is 0ns: more than zero, or leave it out for no limit");
    check(
        |builder| builder.backoff(Duration::ZERO, SECOND),
        "the backoff's base is 0ns, below the least allowed 1ms: raise it",
    );
    check(
        |builder| builder.backoff(2 * SECOND, SECOND),
        "the backoff goes from 2s down to 1s: put the shorter duration first",
    );
    check(
        |builder| builder.backoff(SECOND, DAY + MS),
        "the backoff's maximum is 86400.001s, above the greatest allowed 86400s: lower it",
    );
    check(
        |builder| builder.retry(RetryPolicy::exponential(2 * SECOND..=SECOND)),
        "the retry policy's delay goes from 2s down to 1s: put the shorter duration first",
    );
    check(
        |builder| builder.retry(RetryPolicy::exponential(Duration::ZERO..=SECOND)),
        "the retry policy's first delay is 0ns, below the least allowed 1ns: raise it",
    );
    check(
        |builder| builder.retry(RetryPolicy::fixed(31 * DAY)),
        "the retry policy's longest delay is 2678400s, above the greatest allowed 2592000s: lower it",
    );
}

#[test]
fn what_is_at_the_edge_is_taken() {
    let least = builder()
        .stream("s")
        .group("g")
        .concurrency(1)
        .prefetch(0)
        .prefetch_bytes(1)
        .max_waiting(1)
        .block(MS)
        .lease(300 * MS)
        .claim_every(10 * MS)
        .timeout(Duration::from_nanos(1))
        .grace(Duration::ZERO)
        .backoff(MS, MS)
        .dead_letter_max(1)
        .retry(RetryPolicy::immediate().max_attempts(1));
    assert_eq!(least.build().unwrap().streams().len(), 1);
    let greatest = builder()
        .stream("s")
        .group("g")
        .concurrency(1_000_000)
        .prefetch(1_000_000)
        .prefetch_bytes(usize::MAX)
        .max_waiting(usize::MAX)
        .block(60 * SECOND)
        .lease(DAY)
        .claim_every(DAY)
        .timeout(Duration::MAX)
        .grace(Duration::MAX)
        .backoff(DAY, DAY)
        .retry(RetryPolicy::fixed(30 * DAY).unlimited());
    assert_eq!(greatest.build().unwrap().streams().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_greatest_values_that_are_taken_also_run() {
    let server = MemoryServer::new();
    let ids = crate::memory::publish(&server, "s", 100);
    let greatest = Consumer::durable(&server.client())
        .stream("s")
        .group("g")
        .concurrency(1_000_000)
        .prefetch(1_000_000)
        .prefetch_bytes(usize::MAX)
        .max_waiting(usize::MAX)
        .lease(DAY)
        .timeout(Duration::MAX)
        .grace(Duration::MAX)
        .backoff(DAY, DAY);
    let consumer = start(greatest, || async {});
    let stats = consumer.stats.clone();
    crate::memory::until("all to be acknowledged", || stats.get().acknowledged == ids.len() as u64).await;
    assert!(consumer.stop().await.consumer_removed);
}

fn check_url(url: &str, expected: &str) {
    let error = Client::open(url).expect_err(url);
    let (text, all) = text_of(&error);
    assert_eq!(error.kind(), ErrorKind::Config, "{url}");
    assert!(text.starts_with(expected), "{url}: {text}");
    assert!(!all.contains(PASSWORD), "{url}: {all}");
}

#[test]
fn urls_that_are_not_understood_are_refused() {
    let form = "the URL cannot be parsed: expected redis://[user[:password]@]host[:port][/database]";
    let schemes = "it is one of redis, rediss, redis+unix, unix, redis+sentinel, rediss+sentinel, redis+cluster, \
                   rediss+cluster, and the same with valkey";
    let known = "known are protocol, connect_timeout, response_timeout, keepalive, client_name, db, user, pass";
    check_url("", form);
    check_url("127.0.0.1:6379", form);
    check_url("redis://:hunter2@h:99999", form);
    check_url("redis://:hunter2@h:port", form);
    check_url("redis://:hunter2/3@h", form);
    check_url("redis://:hunter2@h:0", "port 0 cannot be connected to: give 1 to 65535");
    check_url("reddis://:hunter2@h", &format!("unknown scheme `reddis` in the URL: {schemes}"));
    check_url("localhost:6379", &format!("unknown scheme `localhost` in the URL: {schemes}"));
    check_url("http://u:hunter2@h", "the URL is not one of a Redis server: the scheme is one of redis,");
    check_url("redis:///1", "the URL has no host: expected redis://host[:port][/database]");
    check_url("redis+unix://run/r.sock", "a URL of a unix socket has no host: write redis+unix:///path/to.sock");
    let database = "the database in the URL is not a number: expected redis://host:port/0";
    check_url("redis://:hunter2@h/orders", database);
    check_url("redis://:hunter2@h/-1", database);
    check_url("redis://:hunter2@h/1/2", database);
    check_url("redis://:hunter2@h?db=one", database);
    check_url(
        "redis://:hunter2@h?conect_timeout=5s",
        &format!("unknown parameter `conect_timeout` in the URL: {known}"),
    );
    check_url("redis://:hunter2@h?PROTOCOL=resp3", &format!("unknown parameter `PROTOCOL` in the URL: {known}"));
    check_url("redis://h?db=1&db=1", "the parameter `db` is given twice in the URL");
    check_url("redis://:hunter2@h?pass=hunter2", "`pass` is given before and after the `?` of the URL");
    check_url("redis://h/1?db=2", "`db` is given before and after the `?` of the URL");
    for time in ["5", "", "s", "-5s", "5 s", "1.5s", "5h", "99999999999999999999s"] {
        check_url(
            &format!("redis://:hunter2@h?connect_timeout={time}"),
            &format!("connect_timeout=`{time}` in the URL is not a time: write 500ms, 5s or 2m"),
        );
    }
    check_url("redis://h?connect_timeout=0s", "connect_timeout must be between 1ms and 600s");
    check_url("redis://h?response_timeout=11m", "response_timeout must be between 1ms and 600s");
    check_url("redis://h?keepalive=10ms", "keepalive is counted in seconds: give 1s to 32767s, or turn it off");
    check_url("redis://h?protocol=resp4", "protocol=`resp4` in the URL: it is resp2 or resp3");
    check_url("redis://h?client_name=a%20b", "client_name must be printable ASCII without spaces");
    check_url("redis://h?tls_ca_file=/ca.pem", "the parameter `tls_ca_file` needs a rediss:// URL");
}

#[test]
fn passwords_that_should_have_been_encoded_are_not_shown() {
    check_url("redis://u:1#hunter2@h", "the URL has a part after `#`: percent-encode a `#` in a password as %23");
    check_url("redis://u:1/hunter2@h", "the database in the URL is not a number");
    check_url(
        "redis://u:1?hunter2@h",
        "the URL has an `@` after its `?` and a parameter that is not known: percent-encode",
    );
    check_url("redis://u:hunter2%zz@h", "a `%` in the password of the URL is not followed by two hex digits");
    check_url("redis://u:%ffhunter2@h", "the password of the URL is not UTF-8 once decoded");
}

#[test]
fn a_url_for_tls_is_opened_or_names_the_feature_that_is_missing() {
    // Other packages of a build may have turned the feature on.
    match Client::open("rediss://:hunter2@h") {
        Ok(client) => assert!(!format!("{client:?}").contains(PASSWORD)),
        Err(_) => check_url(
            "rediss://:hunter2@h",
            "rediss:// needs TLS, which this build does not have: enable the feature `rustls`",
        ),
    }
}

#[test]
fn the_password_is_in_no_text_of_what_holds_it() {
    for url in ["redis://u:hunter2@h", "redis://:hunter2@h", "redis://h?user=u&pass=hunter2", "unix:///s?pass=hunter2"]
    {
        let client = Client::open(url).unwrap();
        let options = ConnectOptions::from_url(url).unwrap();
        let builder = Consumer::durable(&client).stream("s").group("g");
        let building = format!("{builder:?}");
        let consumer = builder.build().unwrap();
        let all = format!("{client:?} {options:?} {options} {:?} {building} {consumer:?}", options.to_builder());
        assert!(all.contains("***"), "{all}");
        assert!(!all.contains(PASSWORD), "{all}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_ends_the_consumer_and_is_in_no_text() {
    on_each_own(ServerOptions::new().requirepass("right"), |server| async move {
        for url in [format!("redis://:hunter2@{}", server.address()), format!("redis://{}", server.address())] {
            let builder = Consumer::durable(&Client::open(&url).unwrap()).stream("s").group("g");
            let consumer = start(builder, || async {});
            let events = consumer.events.clone();
            let error = consumer.ended().await.unwrap_err();
            let (text, all) = text_of(&error);
            assert_eq!(text, "cannot consume the stream s", "{}", server.name());
            assert!(all.contains("WRONGPASS") || all.contains("NOAUTH"), "{}: {all}", server.name());
            let all = format!("{all} {:?}", events.all());
            assert!(!all.contains(PASSWORD), "{}: {all}", server.name());
        }
        assert_eq!(server.len("s").await, 0, "{}", server.name());
    })
    .await;
}
