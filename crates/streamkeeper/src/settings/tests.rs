//! The table is true, and everything that is wrong is said with the name of its variable and without secrets.

use std::time::Duration;

use stream_consumer::{Context, Outcome, Shutdown};
use stream_core::StartFrom;
use stream_redis::{Address, Protocol};
use stream_testkit::MemoryServer;

use super::table::{VARIABLES, rendered};
use super::*;

fn read(vars: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_vars("APP_", vars.iter().map(|(name, value)| (format!("APP_{name}"), *value)))
}

fn prefect(vars: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    Settings::from_vars(PREFECT_PREFIX, vars.iter().map(|(name, value)| (format!("{PREFECT_PREFIX}{name}"), *value)))
}

#[test]
fn the_documentation_has_this_table() {
    let documented = include_str!("../docs/settings.md");
    assert!(documented.contains(&rendered()), "the table in docs/settings.md is to be:\n{}", rendered());
}

#[test]
fn a_default_that_is_written_out_changes_nothing() {
    for (is_prefect, prefix) in [(false, "APP_"), (true, PREFECT_PREFIX)] {
        let none = Settings::from_vars::<&str, &str>(prefix, []).unwrap();
        for variable in VARIABLES {
            let default = variable.default_for(is_prefect);
            let one = Settings::from_vars(prefix, [(format!("{prefix}{}", variable.name), default)]).unwrap();
            assert!(one.values == none.values, "{prefix}{}={default}", variable.name);
        }
    }
}

#[test]
fn each_variable_changes_something_and_is_refused_where_it_cannot_work() {
    // A value other than the default; then one that is no value, or none that could work.
    let check = |name: &str, other: &str, bad: &str| {
        let changed = read(&[(name, other)]).unwrap_or_else(|error| panic!("{name}={other}: {error}"));
        assert!(changed.values != read(&[]).unwrap().values, "{name}={other} changes nothing");
        if bad.is_empty() {
            return;
        }
        let error = read(&[(name, bad)]).expect_err(name);
        assert_eq!(
            (error.problems().len(), error.problems()[0].variable.as_str()),
            (1, format!("APP_{name}").as_str())
        );
        let remedy = [
            "write",
            "is one of",
            "more than",
            "give",
            "at least",
            "at most",
            "from ",
            "between",
            "raise",
            "lower",
            "expected",
            "number",
        ];
        assert!(remedy.iter().any(|word| error.to_string().contains(word)), "no remedy in: {error}");
    };
    let cases = [
        ("URL", "redis://h/1", "http://h"),
        ("HOST", "h", ""),
        ("PORT", "7", "70000"),
        ("DB", "3", "orders"),
        ("USERNAME", "u", ""),
        ("PASSWORD", "p", ""),
        ("HEALTH_CHECK_INTERVAL", "0", "10ms"),
        ("SOCKET_CONNECT_TIMEOUT", "0.5", "3h"),
        ("SOCKET_TIMEOUT", "250ms", "soon"),
        ("PROTOCOL", "2", "4"),
        ("RECONNECT_BASE", "2", "0"),
        ("RECONNECT_MAX", "30", "2d"),
        ("PUBLISHER_BATCH_SIZE", "5", "0"),
        ("PUBLISHER_PUBLISH_EVERY", "10", "11"),
        ("PUBLISHER_DEDUPLICATE_BY", "id", ""),
        ("PUBLISHER_BUFFER", "5", "-1"),
        ("CONSUMER_BLOCK", "250ms", "0"),
        ("CONSUMER_MIN_IDLE_TIME", "10", "1ms"),
        ("CONSUMER_CLAIM_EVERY", "3", "1ms"),
        ("CONSUMER_MAX_RETRIES", "0", "-1"),
        ("CONSUMER_RETRY_DELAY", "0", "31d"),
        ("CONSUMER_RETRY_DELAY_MAX", "10", "31d"),
        ("CONSUMER_SHOULD_PROCESS_PENDING_MESSAGES", "false", "2"),
        ("CONSUMER_STARTING_MESSAGE_ID", "$", "now"),
        ("CONSUMER_AUTOMATICALLY_ACKNOWLEDGE", "No", "2"),
        ("CONSUMER_CONCURRENCY", "1", "0"),
        ("CONSUMER_PREFETCH", "0", "1000001"),
        ("CONSUMER_PREFETCH_BYTES", "1024", "0"),
        ("CONSUMER_TIMEOUT", "60", "0"),
        ("CONSUMER_GRACE", "5", "a while"),
        ("CONSUMER_TRIM_EVERY", "0", "-1"),
        ("CONSUMER_TRIM_EXCLUDE", "preview-*", "\\"),
        ("CONSUMER_TRIM_IDLE_THRESHOLD", "60", "x"),
        ("CONSUMER_TRIM_PROTECT", "a,b", "a,,b"),
        ("CONSUMER_TRIM_OLDER_THAN", "1h", "x"),
        ("CONSUMER_TRIM_LONGER_THAN", "1000", "x"),
        ("DEAD_LETTER_STREAM", "dead", ""),
        ("DEAD_LETTER_MAX", "1000", "0"),
    ];
    for (name, other, bad) in cases {
        check(name, other, bad);
    }
    let missing =
        |variable: &&Variable| variable.name != "SSL" && !cases.iter().any(|(name, ..)| *name == variable.name);
    assert_eq!(VARIABLES.iter().find(missing).map(|variable| variable.name), None, "has no case here");
}

#[test]
fn encryption_needs_the_feature_and_says_so() {
    let secured = read(&[("SSL", "true")]);
    if cfg!(feature = "rustls") {
        assert!(secured.unwrap().connect_options().is_tls());
    } else {
        let error = secured.unwrap_err().to_string();
        assert!(error.starts_with("APP_SSL: this build has no TLS: enable the feature `rustls`"), "{error}");
    }
}

#[test]
fn with_prefects_prefix_every_default_is_prefects() {
    let settings = prefect(&[]).unwrap();
    let (values, seconds) = (&settings.values, Duration::from_secs);
    assert_eq!((values.block, values.lease, values.retries), (seconds(1), seconds(5), 3));
    assert_eq!((values.trim_every, values.trim_idle), (seconds(60), seconds(300)));
    assert_eq!((values.take_over, values.start, values.acknowledge), (true, StartFrom::Beginning, true));
    assert_eq!((values.batch, values.publish_every, &values.deduplicate_by), (5, seconds(10), &None));
    let options = settings.connect_options();
    let Address::Tcp { host, port } = options.address() else { panic!("{options:?}") };
    assert_eq!((host.as_str(), *port, options.database()), ("localhost", 6379, 0));
    // The user `default` with an empty password is whoever says nothing.
    assert_eq!((options.user(), options.is_tls(), options.protocol()), (None, false, Some(Protocol::Resp2)));
    assert_eq!(options.keepalive().unwrap().time, seconds(20));
    // Theirs is none, which would hang for ever on a connection that is half open.
    assert_eq!((options.connect_timeout(), options.response_timeout()), (seconds(5), seconds(5)));
    let with_password = prefect(&[("PASSWORD", "hunter2")]).unwrap();
    assert_eq!(with_password.connect_options().to_string(), "redis://default:***@localhost:6379/0");
}

#[test]
fn everything_that_is_wrong_is_told_at_once_and_by_name() {
    let error =
        read(&[("CONSUMER_BLOCK", "soon"), ("HOSTNAME", "h"), ("WHATEVER_THIS_IS", "1"), ("PORT", "")]).unwrap_err();
    let names: Vec<&str> = error.problems().iter().map(|problem| problem.variable.as_str()).collect();
    assert_eq!(names, ["APP_CONSUMER_BLOCK", "APP_HOSTNAME", "APP_PORT", "APP_WHATEVER_THIS_IS"]);
    let text = error.to_string();
    assert!(
        text.contains("APP_CONSUMER_BLOCK: `soon` is not a time: write seconds as in 5, or a unit as in 250ms"),
        "{text}"
    );
    assert!(text.contains("leave it out for the default"), "{text}");
    assert!(text.contains("there is no such setting: remove it"), "{text}");
    let near = read(&[("CONSUMER_MAX_RETRYS", "1")]).unwrap_err().to_string();
    assert!(near.ends_with("did you mean APP_CONSUMER_MAX_RETRIES?"), "{near}");
    let empty = Settings::from_vars("", [("PATH", "/bin")]).unwrap_err().to_string();
    assert!(empty.contains("the prefix: it is empty"), "{empty}");
    // What does not begin with the prefix is none of ours.
    Settings::from_vars("APP_", [("PATH", "/bin"), ("APPLE", "1")]).unwrap();
}

#[test]
fn values_that_do_not_go_together_are_named_together() {
    // 400 s alone is above the other's default, so it is named alone; the numbers are those that were given.
    let error = read(&[("CONSUMER_RETRY_DELAY", "400"), ("CONSUMER_RETRY_DELAY_MAX", "350")]).unwrap_err();
    assert_eq!(error.problems()[0].variable, "APP_CONSUMER_RETRY_DELAY");
    assert!(error.to_string().contains("400s down to 350s"), "{error}");
    let error = read(&[("CONSUMER_RETRY_DELAY", "20"), ("CONSUMER_RETRY_DELAY_MAX", "10"), ("PORT", "7")]).unwrap_err();
    assert_eq!(error.problems().len(), 1);
    assert_eq!(error.problems()[0].variable, "APP_CONSUMER_RETRY_DELAY, APP_CONSUMER_RETRY_DELAY_MAX");
    // A short time by itself names nobody; with a pattern it would cost live groups their entries.
    read(&[("CONSUMER_TRIM_IDLE_THRESHOLD", "1")]).unwrap();
    let error = read(&[("CONSUMER_TRIM_IDLE_THRESHOLD", "1"), ("CONSUMER_TRIM_EXCLUDE", "x*")]).unwrap_err();
    assert_eq!(error.problems()[0].variable, "APP_CONSUMER_TRIM_EXCLUDE, APP_CONSUMER_TRIM_IDLE_THRESHOLD");
    // And two that are good together only.
    read(&[("RECONNECT_BASE", "100"), ("RECONNECT_MAX", "200")]).unwrap();
    let error = read(&[("RECONNECT_BASE", "100"), ("RECONNECT_MAX", "200"), ("PORT", "0")]).unwrap_err();
    assert_eq!((error.problems().len(), error.problems()[0].variable.as_str()), (1, "APP_PORT"));
}

#[test]
fn no_text_has_a_secret() {
    let settings = read(&[("PASSWORD", "hunter2"), ("USERNAME", "app")]).unwrap();
    let shown = format!("{settings:?} {:?}", settings.client());
    assert!(!shown.contains("hunter2") && shown.contains("***"), "{shown}");
    let url = read(&[("URL", "redis://app:hunter2@db:7/2")]).unwrap();
    assert!(!format!("{url:?}").contains("hunter2"));
    for bad in ["redis://app:hunter2@db:99999", "redis://app:hunter2@db/x", "hunter2", "redis://:hunter2%zz@h"] {
        let error = read(&[("URL", bad)]).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("hunter2") && shown.contains("APP_URL"), "{shown}");
    }
}

#[test]
fn a_url_goes_before_its_parts_and_what_it_says_before_the_rest() {
    let settings = prefect(&[
        ("URL", "redis://app:pw@db:7/2?protocol=resp3&keepalive=30s"),
        ("HOST", "elsewhere"),
        ("SOCKET_TIMEOUT", "2.5"),
    ])
    .unwrap();
    let options = settings.connect_options();
    assert_eq!(options.to_string(), "redis://app:***@db:7/2");
    assert_eq!(options.protocol(), Some(Protocol::Resp3));
    assert_eq!(options.keepalive().unwrap().time, Duration::from_secs(30));
    assert_eq!(options.response_timeout(), Duration::from_millis(2_500));
}

#[tokio::test(start_paused = true)]
async fn the_builders_do_what_the_variables_say() {
    let server = MemoryServer::new();
    let client = server.client();
    let settings = prefect(&[("CONSUMER_BLOCK", "2"), ("DEAD_LETTER_STREAM", "gone")]).unwrap();
    server.add("events", [("data", "1")]);
    let (sent, mut asked) = tokio::sync::mpsc::unbounded_channel();
    server.on_command(move |words| {
        let words: Vec<String> = words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let _ = sent.send(words.join(" "));
    });
    let shutdown = Shutdown::new();
    let consumer = settings.durable(&client, "events", "triggers").build().unwrap();
    let stats = consumer.stats();
    let switch = shutdown.clone();
    let run = tokio::spawn(async move {
        consumer.run_with(&switch, |_: Context| std::future::ready(Outcome::failed("no"))).await
    });
    let dead = || std::future::ready((stats.get().dead_lettered == 1).then_some(()));
    stream_testkit::eventually(Duration::from_mins(10), "a dead letter", dead).await;
    assert_eq!(stats.get().started, 4, "the first attempt and three retries");
    let letters = settings.dead_letters(&client, "events").unwrap().len().await.unwrap();
    assert_eq!(letters, 1);
    shutdown.stop();
    run.await.unwrap().unwrap();
    let mut commands = Vec::new();
    while let Ok(command) = asked.try_recv() {
        commands.push(command);
    }
    assert!(commands.iter().any(|command| command.starts_with("XREADGROUP") && command.contains("BLOCK 2000")));
    assert!(commands.iter().any(|command| command.starts_with("XAUTOCLAIM") && command.contains(" 5000 ")));
    assert!(commands.iter().any(|command| command == "XGROUP CREATE events triggers 0 MKSTREAM"), "{commands:?}");

    // Told not to, it leaves to others what a dead process had.
    let none = settings_without_takeover().durable(&client, "events", "quiet").build().unwrap();
    let before = server.count("XAUTOCLAIM");
    let running = Shutdown::new();
    let switch = running.clone();
    let run = tokio::spawn(async move { none.run_with(&switch, || async {}).await });
    stream_testkit::work_for(Duration::from_mins(2)).await;
    assert_eq!(server.count("XAUTOCLAIM"), before);
    running.stop();
    run.await.unwrap().unwrap();
}

fn settings_without_takeover() -> Settings {
    prefect(&[("CONSUMER_SHOULD_PROCESS_PENDING_MESSAGES", "false")]).unwrap()
}

#[test]
fn a_url_may_name_sentinels_or_a_cluster() {
    for (url, shown) in
        [("redis+sentinel://:hunter2@s1,s2/main/3", "Sentinel"), ("redis+cluster://:hunter2@n1,n2:7001", "Cluster")]
    {
        let vars = [("ORDERS_URL", url), ("ORDERS_SOCKET_TIMEOUT", "2s")];
        let settings = Settings::from_vars("ORDERS_", vars).unwrap();
        assert_eq!(settings.connect_options().response_timeout(), Duration::from_secs(2), "{url}");
        let text = format!("{:?}", settings.client());
        assert!(text.contains(shown) && !text.contains("hunter2"), "{text}");
    }
    let refused = Settings::from_vars("ORDERS_", [("ORDERS_URL", "redis+cluster://:hunter2@n1/2")]).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("ORDERS_URL") && text.contains("database 0") && !text.contains("hunter2"), "{text}");
}

#[test]
fn duplicates_are_dropped_by_the_attribute_that_was_named() {
    let vars = [("ORDERS_PUBLISHER_DEDUPLICATE_BY", "id"), ("ORDERS_PUBLISHER_BATCH_SIZE", "7")];
    let settings = Settings::from_vars("ORDERS_", vars).unwrap();
    let text = format!("{:?}", settings.prefect_publisher(&settings.client(), "events"));
    assert!(text.contains("\"id\"") && text.contains('7'), "{text}");
}
