//! Every wrong setting is refused before anything is connected to, and the text says what, where and what to do.

use std::time::Duration;

use stream_testkit::MemoryServer;
use streamkeeper::{Client, Consumer, DurableBuilder, ErrorKind, RetryPolicy};

/// `change` is refused at `build()` with a text that has all of `words`.
fn check(change: impl FnOnce(DurableBuilder) -> DurableBuilder, words: &[&str]) {
    let server = MemoryServer::new();
    let good = Consumer::durable(&server.client()).stream("orders").group("billing");
    check_builder(change(good), words);
    assert!(server.commands().is_empty(), "nothing is connected to: {:?}", server.commands());
}

fn check_builder(builder: DurableBuilder, words: &[&str]) {
    let error = match builder.build() {
        Ok(consumer) => panic!("{consumer:?} was built, and should not for: {words:?}"),
        Err(error) => error,
    };
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
    assert!(text.chars().next().is_some_and(|letter| !letter.is_uppercase()) && !text.ends_with('.'), "{text:?}");
}

const fn ms(time: u64) -> Duration {
    Duration::from_millis(time)
}

#[test]
fn settings_that_cannot_work_are_refused_at_build() {
    check(|b| b.lease(ms(299)), &["the lease", "299ms", "300ms", "raise it"]);
    check(|b| b.lease(Duration::ZERO), &["the lease", "0ns", "raise it"]);
    check(|b| b.lease(Duration::from_secs(86_401)), &["the lease", "86401s", "lower it"]);
    check(|b| b.block(Duration::ZERO), &["block", "0ns", "from 1 ms to 60 s", "for ever"]);
    check(|b| b.block(Duration::from_micros(999)), &["block", "999µs", "from 1 ms"]);
    check(|b| b.block(ms(60_001)), &["block", "60.001s", "to 60 s"]);
    check(|b| b.concurrency(0), &["concurrency", "0", "at least one handler"]);
    check(|b| b.concurrency(1_000_001), &["concurrency", "1000001", "at most 1,000,000"]);
    check(|b| b.prefetch_bytes(0), &["prefetch_bytes", "0", "at least one byte"]);
    check(|b| b.max_waiting(0), &["max_waiting", "0", "at least one entry"]);
    check(|b| b.claim_every(ms(9)), &["claim_every", "9ms", "from 10 ms to 24 h"]);
    check(|b| b.claim_every(Duration::from_secs(86_401)), &["claim_every", "to 24 h"]);
    check(|b| b.timeout(Duration::ZERO), &["timeout", "0ns", "leave it out"]);
    check(|b| b.dead_letter_max(0), &["dead_letter_max", "0", "at least 1"]);
    check(|b| b.backoff(Duration::ZERO, ms(1)), &["backoff", "0ns", "raise it"]);
    check(|b| b.backoff(ms(2), ms(1)), &["backoff", "2ms", "1ms", "shorter duration first"]);
    check(|b| b.retry(RetryPolicy::immediate().max_attempts(0)), &["max_attempts", "0", "at least 1"]);
    check(|b| b.retry(RetryPolicy::exponential(ms(2)..=ms(1))), &["retry policy", "2ms", "1ms", "shorter duration first"]);
    check(|b| b.retry(RetryPolicy::exponential(Duration::ZERO..=ms(1))), &["retry policy", "0ns", "raise it"]);
    check(|b| b.retry(RetryPolicy::fixed(Duration::from_secs(2_592_001))), &["retry policy", "lower it"]);
}

#[test]
fn names_that_cannot_work_are_refused_at_build() {
    check(|b| b.stream(""), &["stream", "empty"]);
    check(|b| b.group(""), &["group", "empty"]);
    check(|b| b.consumer(""), &["consumer", "empty"]);
    check(|b| b.dead_letter(""), &["stream", "empty"]);
    check(|b| b.stream("orders"), &["stream", "orders", "twice"]);
    check(|b| b.dead_letter("orders"), &["stream", "dead_letter", "contradict", "another stream"]);
    check(|b| b.stream("orders:dead"), &["stream", "dead_letter", "another stream"]);
    let client = MemoryServer::new().client();
    check_builder(Consumer::durable(&client).group("billing"), &["stream is missing", ".stream(..)"]);
    check_builder(Consumer::durable(&client).stream("orders"), &["group is missing", ".group(..)"]);
}

/// `url` is refused at `open()`.
fn check_url(url: &str, words: &[&str]) {
    let error = Client::open(url).expect_err(url);
    assert_eq!(error.kind(), ErrorKind::Config, "{url}");
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "{url}: {text:?} does not say {word:?}");
    }
    assert!(!format!("{error} {error:?}").contains("hunter2"), "{url}: the password is in the error");
}

#[test]
fn urls_that_cannot_work_are_refused_at_open() {
    check_url("amqp://localhost", &["unknown scheme `amqp`", "redis"]);
    check_url("https://:hunter2@localhost", &["scheme", "redis"]);
    check_url("localhost:6379", &["unknown scheme", "redis"]);
    check_url("redis://", &["host"]);
    check_url("redis://h?reponse_timeout=5s", &["unknown parameter `reponse_timeout`", "response_timeout"]);
    check_url("redis://h?block=5s", &["unknown parameter `block`", "known are"]);
    check_url("redis://:hunter2@h?Protocol=resp3", &["unknown parameter `Protocol`", "protocol"]);
    check_url("redis://h?response_timeout=5", &["response_timeout", "write 500ms, 5s or 2m"]);
    check_url("redis://h?response_timeout=0s", &["response_timeout"]);
    check_url("redis://h?protocol=3.0", &["protocol", "resp2 or resp3"]);
    check_url("redis://h/first", &["database", "number"]);
    check_url("redis://:hunter2@h:port", &["cannot be parsed"]);
    check_url("redis://:hunter2@h#frag", &["#", "%23"]);
    check_url("", &["cannot be parsed"]);
}
