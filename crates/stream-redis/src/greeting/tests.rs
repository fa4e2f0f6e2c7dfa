//! Over a pipe whose other end is played by the test.

use tokio::io::duplex;

use super::*;

/// Greets a server that answers `answers`, each after the words before it, and returns what came of it.
async fn greet_with(options: &ConnectOptions, script: &[(&str, &str)]) -> Result<(Protocol, ServerIdentity), Error> {
    let (mut ours, mut theirs) = duplex(4096);
    let script = script.to_vec();
    let serve = async move {
        for (expected, answer) in script {
            let mut seen = vec![0; expected.len()];
            theirs.read_exact(&mut seen).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&seen), expected);
            theirs.write_all(answer.as_bytes()).await.unwrap();
        }
        drop(theirs);
    };
    tokio::join!(greet(&mut ours, options), serve).0
}

fn wire(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let words: String =
        words.iter().fold(format!("*{}\r\n", words.len()), |wire, word| format!("{wire}${}\r\n{word}\r\n", word.len()));
    words
}

const HELLO: &str = "%3\r\n$6\r\nserver\r\n$6\r\nvalkey\r\n$7\r\nversion\r\n$5\r\n8.1.1\r\n$5\r\nproto\r\n:3\r\n";

#[tokio::test]
async fn everything_goes_in_one_round_trip() {
    let options = ConnectOptions::tcp("h", 1).user("u").password("p").client_name("n").database(4).build().unwrap();
    let asked = wire("HELLO 3 AUTH u p SETNAME n") + &wire("SELECT 4");
    let (protocol, server) = greet_with(&options, &[(&asked, &format!("{HELLO}+OK\r\n"))]).await.unwrap();
    assert_eq!(protocol, Protocol::Resp3);
    assert_eq!((server.name.as_deref(), server.version.as_deref()), (Some("valkey"), Some("8.1.1")));
}

#[tokio::test]
async fn a_password_alone_is_that_of_the_default_user() {
    let options = ConnectOptions::tcp("h", 1).password("p").build().unwrap();
    greet_with(&options, &[(&wire("HELLO 3 AUTH default p"), HELLO)]).await.unwrap();
    let options = options.to_builder().protocol(Protocol::Resp2).build().unwrap();
    let asked = wire("AUTH p") + &wire("PING");
    greet_with(&options, &[(&asked, "+OK\r\n+PONG\r\n")]).await.unwrap();
}

#[tokio::test]
async fn without_hello_it_is_resp2() {
    let options = ConnectOptions::tcp("h", 1).user("u").password("p").client_name("n").database(4).build().unwrap();
    let hello = wire("HELLO 3 AUTH u p SETNAME n") + &wire("SELECT 4");
    let again = wire("AUTH u p") + &wire("CLIENT SETNAME n") + &wire("SELECT 4") + &wire("PING");
    for refusal in [
        "-ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `u`, `p`, \r\n-NOAUTH x\r\n",
        "-NOPERM this user has no permissions to run the 'hello' command\r\n+OK\r\n",
        "-NOPROTO unsupported protocol version\r\n+OK\r\n",
        "-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n",
    ] {
        // The name may be refused, and a server that is loading does not answer to PING.
        let answers = "+OK\r\n-NOPERM no\r\n+OK\r\n-LOADING Redis is loading\r\n";
        let greeted = greet_with(&options, &[(&hello, refusal), (&again, answers)]).await.unwrap();
        assert_eq!(greeted, (Protocol::Resp2, ServerIdentity::default()), "{refusal}");
    }
}

#[tokio::test]
async fn a_server_that_answers_hello_in_resp2_is_believed() {
    let flat = "*4\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:2\r\n";
    let options = ConnectOptions::tcp("h", 1).build().unwrap();
    let (protocol, server) = greet_with(&options, &[(&wire("HELLO 3"), flat)]).await.unwrap();
    assert_eq!((protocol, server.name.as_deref()), (Protocol::Resp2, Some("redis")));
}

async fn check_refused(answer: &str, kind: ErrorKind, words: &str) {
    let options = ConnectOptions::tcp("h", 1).build().unwrap();
    let error = greet_with(&options, &[(&wire("HELLO 3"), answer)]).await.unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(words), "{error:?}");
}

#[tokio::test]
async fn refusals_keep_the_server_s_words() {
    check_refused("-LOADING Redis is loading the dataset in memory\r\n", ErrorKind::Busy, "LOADING").await;
    check_refused("-ERR max number of clients reached\r\n", ErrorKind::TooManyClients, "max number of clients").await;
    check_refused("-DENIED Redis is running in protected mode\r\n", ErrorKind::Refused, "protected mode").await;
    check_refused("", ErrorKind::Io, "closed the connection").await;
    check_refused("\x15\x03\x03", ErrorKind::Tls, "use rediss://").await;
    check_refused("HTTP/1.1 400 Bad Request\r\n", ErrorKind::Protocol, "not a Redis server").await;
    check_refused(&format!("{HELLO}+more\r\n"), ErrorKind::Protocol, "more than it was asked").await;
    check_refused(&"*1\r\n".repeat(5), ErrorKind::Io, "closed the connection").await;
    let endless = format!("*1\r\n${}\r\n{}", 10 * LARGEST, "x".repeat(LARGEST + 10));
    check_refused(&endless, ErrorKind::Protocol, "is longer than 65536 bytes").await;
}

#[tokio::test]
async fn what_a_full_server_said_counts_more_than_a_failed_write() {
    let (mut ours, mut theirs) = duplex(4096);
    theirs.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
    drop(theirs);
    let options = ConnectOptions::tcp("h", 1).build().unwrap();
    let error = greet(&mut ours, &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooManyClients, "{error:?}");
}
