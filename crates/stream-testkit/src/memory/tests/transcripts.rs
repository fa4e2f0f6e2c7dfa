//! Conversations with the model, a line for each command and its reply: the rules that consumers are built on, also
//! where no real server is at hand to compare with.

use super::*;

/// Says the commands one after the other and compares the replies.
fn check(profile: Profile, conversation: &[(&str, &str)]) {
    let server = MemoryServer::with_profile(profile);
    for (command, expected) in conversation {
        let reply = match server.command(command.split(' ')) {
            Ok(value) => text(&value),
            Err(error) => format!("-{error}"),
        };
        assert_eq!(&reply, expected, "{profile:?}: {command}");
    }
}

fn check_all(conversation: &[(&str, &str)]) {
    for profile in ALL {
        check(profile, conversation);
    }
}

fn text(value: &Value) -> String {
    let list = |values: &[Value]| values.iter().map(text).collect::<Vec<_>>().join(" ");
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(number) => number.to_string(),
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(values) => format!("[{}]", list(values)),
        Value::Map(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect();
            format!("{{{}}}", pairs.join(" "))
        }
        other => format!("{other:?}"),
    }
}

const CREATE: (&str, &str) = ("XGROUP CREATE s g 0 MKSTREAM", "OK");
const ADD_1: (&str, &str) = ("XADD s 1-0 f v", "1-0");
const ADD_2: (&str, &str) = ("XADD s 2-0 f v", "2-0");
const READ: (&str, &str) = ("XREADGROUP GROUP g a STREAMS s >", "{s=[[1-0 [f v]] [2-0 [f v]]]}");
const NO_KEY_OR_GROUP: &str = "-NOGROUP No such key 's' or consumer group 'g'";
const NO_GROUP: &str = "-NOGROUP No such consumer group 'g' for key name 's'";
const NO_KEY: &str = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
                      MKSTREAM option to create an empty stream automatically.";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value";

#[test]
fn what_is_missing_is_told_in_three_ways() {
    let read = "-NOGROUP No such key 's' or consumer group 'g' in XREADGROUP with GROUP option";
    check_all(&[
        ("XREADGROUP GROUP g a STREAMS s >", read),
        ("XPENDING s g", NO_KEY_OR_GROUP),
        ("XCLAIM s g a 0 1-0", NO_KEY_OR_GROUP),
        ("XAUTOCLAIM s g a 0 0", NO_KEY_OR_GROUP),
        ("XGROUP CREATE s g 0", NO_KEY),
        ("XGROUP DESTROY s g", NO_KEY),
        ("XGROUP SETID s g 0", NO_KEY),
        ("XINFO STREAM s", "-ERR no such key"),
        ("XINFO GROUPS s", "-ERR no such key"),
        ("XACK s g 1-0", "0"),
        ("XTRIM s MAXLEN 0", "0"),
        ("XDEL s 1-0", "0"),
        ("XLEN s", "0"),
        ("XRANGE s - +", "[]"),
        ("XADD s NOMKSTREAM 1-0 f v", "nil"),
        ADD_1,
        ("XREADGROUP GROUP g a STREAMS s >", read),
        ("XINFO CONSUMERS s g", NO_GROUP),
        ("XGROUP DELCONSUMER s g a", NO_GROUP),
        ("XGROUP DESTROY s g", "0"),
        ("XACK s g 1-0", "0"),
        ("XGROUP CREATE s g 0", "OK"),
        ("XGROUP CREATE s g 0", "-BUSYGROUP Consumer Group name already exists"),
        ("XGROUP DELCONSUMER s g a", "0"),
    ]);
}

#[test]
fn a_key_of_another_type_is_refused_everywhere() {
    let mut conversation = vec![("SET s text", "OK"), ("TYPE s", "string")];
    let commands = [
        "XADD s * f v",
        "XLEN s",
        "XRANGE s - +",
        "XREAD STREAMS s 0",
        "XREADGROUP GROUP g a STREAMS s >",
        "XACK s g 1-0",
        "XPENDING s g",
        "XCLAIM s g a 0 1-0",
        "XAUTOCLAIM s g a 0 0",
        "XGROUP CREATE s g 0 MKSTREAM",
        "XINFO STREAM s",
        "XTRIM s MAXLEN 0",
        "XDEL s 1-0",
    ];
    conversation.extend(commands.map(|command| (command, WRONG_TYPE)));
    check_all(&conversation);
}

#[test]
fn ids_only_grow() {
    let too_small = "-ERR The ID specified in XADD is equal or smaller than the target stream top item";
    check_all(&[
        ("XADD s 0-0 f v", "-ERR The ID specified in XADD must be greater than 0-0"),
        ("XADD s x f v", "-ERR Invalid stream ID specified as stream command argument"),
        ("XADD s 5 f v", "5-0"),
        ("XADD s 5-0 f v", too_small),
        ("XADD s 4-9 f v", too_small),
        ("XDEL s 5-0", "1"),
        ("XADD s 5-0 f v", too_small),
        ("XADD s 99999999999999-0 f v", "99999999999999-0"),
        ("XADD s * f v", "99999999999999-1"),
        ("XADD s 18446744073709551615-18446744073709551615 f v", "18446744073709551615-18446744073709551615"),
        ("XADD s * f v", "-ERR The stream has exhausted the last possible ID, unable to add more items"),
    ]);
    check(Profile::Redis70, &[("XADD s 5-* f v", "5-0"), ("XADD s 5-* f v", "5-1"), ("XADD s 4-* f v", too_small)]);
}

#[tokio::test(start_paused = true)]
async fn a_group_hands_out_each_entry_once_and_its_consumer_can_look_again() {
    check_all(&[
        CREATE,
        ADD_1,
        ADD_2,
        READ,
        ("XREADGROUP GROUP g b STREAMS s >", "nil"),
        ("XREADGROUP GROUP g b STREAMS s 0", "{s=[]}"),
        ("XREADGROUP GROUP g a STREAMS s 1-0", "{s=[[2-0 [f v]]]}"),
        ("XPENDING s g - + 10", "[[1-0 a 0 1] [2-0 a 0 2]]"),
        ("XPENDING s g", "[2 1-0 2-0 [[a 2]]]"),
        ("XPENDING s g (1-0 + 10 a", "[[2-0 a 0 2]]"),
        ("XPENDING s g - + 10 b", "[]"),
        ("XACK s g 1-0 1-0 9-9", "1"),
        ("XPENDING s g", "[1 2-0 2-0 [[a 1]]]"),
        ("XGROUP DELCONSUMER s g a", "1"),
        ("XPENDING s g", "[0 nil nil nil]"),
        ("XREADGROUP GROUP g b STREAMS s >", "nil"),
        ("XGROUP SETID s g 0", "OK"),
        ("XREADGROUP GROUP g b NOACK STREAMS s >", "{s=[[1-0 [f v]] [2-0 [f v]]]}"),
        ("XPENDING s g", "[0 nil nil nil]"),
    ]);
}

#[test]
fn pending_entries_that_were_deleted_stay_for_ever_on_the_oldest_generation() {
    let setup = [
        CREATE,
        ADD_1,
        ADD_2,
        READ,
        ("XDEL s 1-0", "1"),
        ("XREADGROUP GROUP g a STREAMS s 0", "{s=[[1-0 nil] [2-0 [f v]]]}"),
    ];
    let claims = [
        ("XCLAIM s g b 0 1-0", "[nil]"),
        ("XCLAIM s g b 0 1-0 JUSTID", "[1-0]"),
        ("XAUTOCLAIM s g b 0 0", "[0-0 [nil [2-0 [f v]]]]"),
        ("XPENDING s g", "[2 1-0 2-0 [[b 2]]]"),
        ("XACK s g 1-0", "1"),
    ];
    check(Profile::Redis62, &[&setup[..], &claims].concat());
    for profile in &ALL[1..] {
        check(
            *profile,
            &[&setup[..], &[("XCLAIM s g b 0 1-0 JUSTID", "[]"), ("XPENDING s g", "[1 2-0 2-0 [[a 1]]]")]].concat(),
        );
        check(*profile, &[&setup[..], &[("XAUTOCLAIM s g b 0 0 JUSTID", "[0-0 [2-0] [1-0]]")]].concat());
    }
}

#[test]
fn consumers_come_to_exist_late_before_7_2() {
    let poll = [CREATE, ("XREADGROUP GROUP g a STREAMS s >", "nil"), ("XAUTOCLAIM s g b 0 0 JUSTID COUNT 1", "?")];
    for profile in ALL {
        let claimed = if profile == Profile::Redis62 { "[0-0 []]" } else { "[0-0 [] []]" };
        let consumers = match profile {
            Profile::Redis62 | Profile::Redis70 => "[]",
            _ => "[{name=a pending=0 idle=0 inactive=-1} {name=b pending=0 idle=0 inactive=-1}]",
        };
        check(profile, &[poll[0], poll[1], (poll[2].0, claimed), ("XINFO CONSUMERS s g", consumers)]);
    }
}

#[test]
fn lag_is_unknown_where_the_server_cannot_know_it() {
    let group = |profile, setup: &[(&str, &str)], read: &str, lag: &str| {
        let group = format!("name=g consumers=0 pending=0 last-delivered-id=1-0 entries-read={read} lag={lag}");
        check(profile, &[setup, &[("XINFO GROUPS s", format!("[{{{group}}}]").as_str())]].concat());
    };
    let three = [ADD_1, ADD_2, ("XADD s 3-0 f v", "3-0")];
    let middle = [&three[..], &[("XGROUP CREATE s g 1-0", "OK")]].concat();
    let told = [&three[..], &[("XGROUP CREATE s g 1-0 ENTRIESREAD 1", "OK")]].concat();
    let holed = [&told[..], &[("XDEL s 2-0", "1")]].concat();
    for profile in &ALL[1..] {
        // The first entry's number is known, any other's is not.
        group(*profile, &middle, "nil", "2");
        group(*profile, &told, "1", "2");
        group(*profile, &holed, "1", "nil");
    }
    let emptied = [&told[..], &[("XTRIM s MAXLEN 0", "3")]].concat();
    group(Profile::Redis72Plus, &emptied, "1", "2");
    group(Profile::Redis80Plus, &emptied, "1", "0");
    check(
        Profile::Redis62,
        &[&middle[..], &[("XINFO GROUPS s", "[{name=g consumers=0 pending=0 last-delivered-id=1-0}]")]].concat(),
    );
}

#[tokio::test(start_paused = true)]
async fn the_scripts_touch_only_what_their_consumer_owns() {
    let owned = [CREATE, ADD_1, ADD_2, READ, ("XCLAIM s g b 0 2-0 JUSTID", "[2-0]")];
    let check = |script: &str, args: &str, reply: &str, after: &[(&str, &str)]| {
        let script = stream_redis::command::Script::all().iter().find(|known| known.name() == script).unwrap();
        for profile in ALL {
            let server = MemoryServer::with_profile(profile);
            for (command, _) in owned {
                server.command(command.split(' ')).unwrap();
            }
            let call: Vec<&str> = ["EVAL", script.source()].into_iter().chain(args.split(' ')).collect();
            assert_eq!(text(&server.command(call).unwrap()), reply, "{profile:?}: {} {args}", script.name());
            for (command, expected) in after {
                assert_eq!(&text(&server.command(command.split(' ')).unwrap()), expected, "{profile:?}: {command}");
            }
        }
    };
    let pending = "XPENDING s g - + 10";
    check("renew", "1 s g a 1-0 2-0 3-0", "[[2-0] [] [3-0]]", &[(pending, "[[1-0 a 0 1] [2-0 b 0 1]]")]);
    check("hand_back", "1 s g a 5000 1-0 0 2-0 0", "[1]", &[(pending, "[[1-0 a 5000 0] [2-0 b 0 1]]")]);
    check("take", "1 s g a 0 1-0 4 2-0 4", "[1 0]", &[(pending, "[[1-0 a 0 4] [2-0 b 0 1]]")]);
    check("take", "1 s g a 1 1-0 4", "[[1-0 [f v]]]", &[(pending, "[[1-0 a 0 4] [2-0 b 0 1]]")]);
    check("acknowledge", "1 s g a 1-0 2-0", "[2-0]", &[(pending, "[[2-0 b 0 1]]")]);
    let dead = ("XRANGE dead - +", "[[1700000000000-0 [n v]]]");
    check("dead_letter", "2 s dead g a 1-0 10 n v", "1700000000000-0", &[(pending, "[[2-0 b 0 1]]"), dead]);
    check("dead_letter", "2 s dead g a 2-0 10 n v", "nil", &[("XLEN dead", "0")]);
    check("remove_consumer", "1 s g a", "0", &[(pending, "[[1-0 a 0 1] [2-0 b 0 1]]")]);
    check("remove_consumer", "1 s g none", "0", &[]);
    check("remove_consumer", "1 s g none 0", "0", &[]);
}

#[test]
fn scripts_are_known_by_their_hash_only_after_their_source() {
    let server = with_group(Profile::Redis70);
    let script = stream_redis::command::Script::renew();
    let by_hash = ["EVALSHA", script.sha(), "1", "s", "g", "a", "1-0"];
    let unknown = server.command(by_hash).unwrap_err().to_string();
    assert_eq!(unknown, "NOSCRIPT No matching script. Please use EVAL.");
    server.command(["EVAL", script.source(), "1", "s", "g", "a", "1-0"]).unwrap();
    assert_eq!(server.command(by_hash).map(|value| text(&value)), Ok("[[] [] [1-0]]".to_owned()));
    server.forget_scripts();
    assert!(server.command(by_hash).is_err());
}

#[test]
fn trimming_by_whole_nodes_leaves_what_is_left_of_a_node() {
    let server = MemoryServer::new();
    for number in 1..=1050 {
        server.add_at("s", EntryId::new(number, 0), [("f", "v")]).unwrap();
    }
    let trim = |args: &str| text(&server.command(format!("XTRIM s {args}").split(' ')).unwrap());
    assert_eq!(trim("MAXLEN ~ 1000"), "0", "a node has 100 entries, and 50 are too many");
    assert_eq!((trim("MAXLEN ~ 900 LIMIT 50"), trim("MAXLEN ~ 900")), ("0".to_owned(), "100".to_owned()));
    assert_eq!((trim("MINID ~ 250-0"), trim("MINID 250-0")), ("100".to_owned(), "49".to_owned()));
    assert_eq!((trim("MAXLEN 10"), server.len("s")), ("791".to_owned(), 10));
}
