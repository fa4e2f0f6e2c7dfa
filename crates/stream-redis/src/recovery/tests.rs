//! Texts that servers send, word for word, and what they mean. Measured on Redis 6.2, 7.0, 8.0, 8.6 and Valkey 8.1, 9.1.

use super::*;
use crate::Error;

fn check(line: &str, kind: ErrorKind, recovery: Recovery) {
    let error = Error::from_server(ServerError::parse(line));
    assert_eq!(error.kind(), kind, "{line}");
    assert_eq!(error.recovery(), recovery, "{line}");
}

#[test]
fn streams_and_groups_that_are_there_or_not() {
    let missing = |line| check(line, ErrorKind::Missing, Recovery::Missing);
    missing("NOGROUP No such key 'K' or consumer group 'G' in XREADGROUP with GROUP option");
    missing("NOGROUP No such key 'K' or consumer group 'G'");
    missing("NOGROUP No such consumer group 'G' for key name 'K'");
    missing("NOGROUP the consumer group this client was blocked on no longer exists");
    missing("UNBLOCKED the stream key no longer exists");
    missing("ERR no such key");
    missing(
        "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the MKSTREAM \
         option to create an empty stream automatically.",
    );
    check("BUSYGROUP Consumer Group name already exists", ErrorKind::GroupExists, Recovery::Satisfied);
}

#[test]
fn a_server_that_is_busy_with_itself_is_asked_again() {
    for line in [
        "LOADING Redis is loading the dataset in memory",
        "LOADING Valkey is loading the dataset in memory",
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "CLUSTERDOWN Hash slot not served",
        "CLUSTERDOWN The cluster is down",
        "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "NOREPLICAS Not enough good replicas to write.",
        "ERR Script killed by user with SCRIPT KILL... script: 7f92, on @user_script:1.",
    ] {
        check(line, ErrorKind::Busy, Recovery::Retry);
    }
    check("UNBLOCKED client unblocked via CLIENT UNBLOCK", ErrorKind::Unblocked, Recovery::Retry);
}

#[test]
fn a_node_that_is_no_longer_the_one_is_left() {
    for line in [
        "READONLY You can't write against a read only replica.",
        "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
        "MOVED 866 127.0.0.1:7001",
        "ASK 866 127.0.0.1:7001",
    ] {
        check(line, ErrorKind::Moved, Recovery::Reconnect);
    }
    check("ERR max number of clients reached", ErrorKind::TooManyClients, Recovery::Reconnect);
    check("ERR max number of clients + cluster connections reached", ErrorKind::TooManyClients, Recovery::Reconnect);
}

#[test]
fn who_may_not_is_told_once() {
    for line in [
        "NOAUTH Authentication required.",
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
         <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        "WRONGPASS invalid username-password pair or user is disabled.",
        "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
         configuration is correct?",
        "ERR Client sent AUTH, but no password is set",
        "ERR invalid password",
    ] {
        check(line, ErrorKind::Authentication, Recovery::Fatal);
    }
    for line in [
        "NOPERM this user has no permissions to run the 'ping' command or its subcommand",
        "NOPERM this user has no permissions to run the 'client|setname' command",
        "NOPERM User u has no permissions to run the 'xgroup|create' command",
        "NOPERM this user has no permissions to access one of the keys used as arguments",
        "NOPERM No permissions to access a key",
    ] {
        check(line, ErrorKind::NoPermission, Recovery::Fatal);
    }
}

#[test]
fn what_will_never_work_is_final() {
    check("WRONGTYPE Operation against a key holding the wrong kind of value", ErrorKind::WrongType, Recovery::Fatal);
    for line in [
        "ERR unknown command `XACKDEL`, with args beginning with: `k`, `g`, `IDS`, `1`, `0-1`, ",
        "ERR unknown command 'XACKDEL', with args beginning with: 'k' 'g' 'IDS' '1' '0-1' ",
        "ERR Unknown subcommand or wrong number of arguments for 'DOCS'. Try COMMAND HELP.",
        "ERR unknown subcommand 'FOO'. Try XGROUP HELP.",
        "ERR syntax error",
        "ERR syntax error, LIMIT cannot be used without the special ~ option",
        "ERR syntax error, IDMP/IDMPAUTO can be used only with auto-generated IDs",
        "NOPROTO unsupported protocol version",
    ] {
        check(line, ErrorKind::Unsupported, Recovery::Fatal);
    }
    for line in [
        "ERR Invalid stream ID specified as stream command argument",
        "ERR The ID specified in XADD is equal or smaller than the target stream top item",
        "ERR The ID specified in XADD must be greater than 0-0",
        "ERR The stream has exhausted the last possible ID, unable to add more items",
        "ERR wrong number of arguments for 'xadd' command",
        "ERR timeout is negative",
        "ERR DB index is out of range",
        "ERR Error compiling script (new function): user_script:1: '=' expected near '1'",
        "CROSSSLOT Keys in request don't hash to the same slot",
        "EXECABORT Transaction discarded because of previous errors.",
        "DENIED Redis is running in protected mode because protected mode is enabled",
    ] {
        check(line, ErrorKind::Refused, Recovery::Fatal);
    }
    check("NOSCRIPT No matching script. Please use EVAL.", ErrorKind::NoScript, Recovery::Fatal);
    check("NOSCRIPT No matching script.", ErrorKind::NoScript, Recovery::Fatal);
    check("SKLOST the owner is another", ErrorKind::Other, Recovery::Fatal);
    check("", ErrorKind::Other, Recovery::Fatal);
    check("ERR größer als erwartet und so weiter, unknown command", ErrorKind::Refused, Recovery::Fatal);
}

/// What one error of a command looks like when a script raised it, on each version.
fn check_raised(plain: &str, old: &str, kind: ErrorKind, recovery: Recovery) {
    check(&format!("ERR Error running script (call to f_0632): @user_script:12: {old}"), kind, recovery);
    check(&format!("{plain} script: 0632, on @user_script:12."), kind, recovery);
    check(&format!("{plain} script: on @user_script:12."), kind, recovery);
}

#[test]
fn errors_raised_in_a_script_mean_what_they_mean_outside() {
    for (plain, kind, recovery) in [
        ("NOGROUP No such key 'k' or consumer group 'g'", ErrorKind::Missing, Recovery::Missing),
        ("ERR no such key", ErrorKind::Missing, Recovery::Missing),
        ("ERR The XGROUP subcommand requires the key to exist. Note", ErrorKind::Missing, Recovery::Missing),
        ("BUSYGROUP Consumer Group name already exists", ErrorKind::GroupExists, Recovery::Satisfied),
        ("WRONGTYPE Operation against a key holding the wrong kind", ErrorKind::WrongType, Recovery::Fatal),
        ("ERR syntax error", ErrorKind::Unsupported, Recovery::Fatal),
    ] {
        check_raised(plain, plain, kind, recovery);
    }
    for (plain, kind, recovery) in [
        ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::Busy, Recovery::Retry),
        ("NOREPLICAS Not enough good replicas to write.", ErrorKind::Busy, Recovery::Retry),
        ("MISCONF Redis is configured to save RDB snapshots, but", ErrorKind::Busy, Recovery::Retry),
        ("READONLY You can't write against a read only replica.", ErrorKind::Moved, Recovery::Reconnect),
    ] {
        check_raised(plain, &format!("@user_script: 12: -{plain}"), kind, recovery);
    }
    let unsupported = |line| check(line, ErrorKind::Unsupported, Recovery::Fatal);
    unsupported(
        "ERR Error running script (call to f_d666): @user_script:1: @user_script: 1: Unknown Redis command called from \
         Lua script",
    );
    unsupported("ERR Unknown Redis command called from script script: d666, on @user_script:1.");
    unsupported("ERR Unknown command called from script script: on @user_script:1.");
    let denied = |line| check(line, ErrorKind::NoPermission, Recovery::Fatal);
    denied(
        "ERR Error running script (call to f_fa17): @user_script:1: @user_script: 1: The user executing the script can't \
         run this command or subcommand",
    );
    denied(
        "ERR Error running script (call to f_fa17): @user_script:1: @user_script: 1: The user executing the script can't \
         access at least one of the keys mentioned in the command arguments",
    );
    denied("ERR The user executing the script can't run this command or subcommand script: fa17, on @user_script:1.");
    denied("ERR ACL failure in script: User u has no permissions to run the 'xlen' command script: on @user_script:1.");
    denied("ERR ACL failure in script: No permissions to access a key script: fa17, on @user_script:1.");
    check(
        "ERR Error running script (call to f_694a): @user_script:1: Script killed by user with SCRIPT KILL...",
        ErrorKind::Busy,
        Recovery::Retry,
    );
    check(
        "ERR Error running script (call to f_8290): @user_script:1: user_script:1: boom",
        ErrorKind::Refused,
        Recovery::Fatal,
    );
}

#[test]
fn an_old_server_s_wrapper_becomes_the_form_of_new_ones() {
    let parse = |line| ServerError::parse(line).to_string();
    assert_eq!(
        parse("ERR Error running script (call to f_06): @user_script:2: NOGROUP No such key 'k' or consumer group 'g'"),
        "NOGROUP No such key 'k' or consumer group 'g' script: 06, on @user_script:2."
    );
    assert_eq!(
        parse("ERR Error running script (call to f_06): @user_script:2: @user_script: 2: -OOM command not allowed"),
        "OOM command not allowed script: 06, on @user_script:2."
    );
    assert_eq!(
        parse("ERR Error running script (call to f_06): @user_script:2: @user_script: 2: Wrong number of args"),
        "ERR Wrong number of args script: 06, on @user_script:2."
    );
    assert_eq!(parse("@user_script: 30: -OOM command not allowed"), "OOM command not allowed");
    assert_eq!(parse("@user_script: 30: Unknown Redis command"), "ERR Unknown Redis command");
    for line in ["ERR Error running script (call to f_06", "ERR Error running script (call to f_06): @user_script:2"] {
        assert_eq!(parse(line), line);
    }
}

#[test]
fn arguments_of_an_unknown_command_are_not_repeated() {
    for line in [
        "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `default`, `hunter2`, ",
        "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'hunter2' ",
    ] {
        let error = Error::from_server(ServerError::parse(line));
        let text = format!("{error} {error:?} {:?}", error.server());
        assert!(text.contains("unknown command") && !text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_node_that_is_cut_off_is_left_after_some_answers_and_not_before() {
    let error = |line: &str| Error::from_server(ServerError::parse(line));
    let cut_off = error("NOREPLICAS Not enough good replicas to write.");
    let mut doubt = NodeDoubt::default();
    for _ in 0..3 {
        assert_eq!(doubt.recovery(&cut_off), Recovery::Retry);
        assert_eq!(doubt.recovery(&error("CLUSTERDOWN The cluster is down")), Recovery::Retry);
        assert_eq!(doubt.recovery(&error("LOADING Redis is loading")), Recovery::Retry);
        assert_eq!(doubt.recovery(&error("MASTERDOWN Link with MASTER is down")), Recovery::Reconnect);
    }
    for _ in 0..10 {
        assert_eq!(doubt.recovery(&cut_off), Recovery::Retry);
        doubt.reset();
    }
}
