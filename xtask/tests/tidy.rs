//! Rules of the repository that no compiler checks, as tests: what is checked by `cargo test` needs no reminder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The limit of a source file, in lines. Longer ones are split along a concept.
const LINES: usize = 500;

#[test]
fn sources_are_tidy() {
    let mut complaints = Vec::new();
    for (path, text) in files(&["rs"]) {
        // This file has to spell out what it forbids.
        if path != "xtask/tests/tidy.rs" {
            complaints
                .extend(source_complaints(&path, &text).into_iter().map(|complaint| format!("{path}: {complaint}")));
        }
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Crates in which every public item shows by an example that runs what it is for.
const WITH_EXAMPLES: [&str; 1] = ["crates/stream-maint/src/"];

#[test]
fn public_items_have_an_example_that_runs() {
    let mut complaints = Vec::new();
    for (path, text) in files(&["rs"]) {
        if WITH_EXAMPLES.iter().any(|below| path.starts_with(below)) {
            complaints.extend(example_complaints(&text).into_iter().map(|complaint| format!("{path}: {complaint}")));
        }
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn no_file_names_a_machine() {
    let mut complaints = Vec::new();
    for (path, text) in files(&[]) {
        if path != "xtask/tests/tidy.rs" && !path.ends_with("Cargo.lock") {
            complaints
                .extend(machine_complaints(&path, &text).into_iter().map(|complaint| format!("{path}: {complaint}")));
        }
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn packages_depend_downwards_only() {
    let manifests: BTreeMap<String, String> =
        files(&["toml"]).into_iter().filter(|(path, _)| path.ends_with("/Cargo.toml")).collect();
    assert!(manifests.len() >= 6, "found {} packages only", manifests.len());
    let mut complaints = Vec::new();
    for (path, text) in &manifests {
        complaints.extend(layer_complaints(path, text).into_iter().map(|complaint| format!("{path}: {complaint}")));
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn tests_that_the_documentation_names_exist_and_field_cases_are_all_named() {
    let mut tests = BTreeSet::new();
    for (_, text) in files(&["rs"]) {
        tests.extend(tests_in(&text));
    }
    assert!(tests.len() > 500, "found {} tests only", tests.len());
    let (_, text) = files(&["md"]).into_iter().find(|(path, _)| path == "docs/testing.md").expect("it is there");
    let complaints = naming_complaints(&text, &tests);
    assert!(complaints.is_empty(), "docs/testing.md:\n{}\n", complaints.join("\n"));
}

fn source_complaints(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if !text.starts_with("//!") {
        complaints.push("does not open with //! saying what it is for".to_owned());
    }
    let lines = text.lines().count();
    if lines > LINES {
        complaints.push(format!("has {lines} lines, more than {LINES}: split it along a concept"));
    }
    let tests_begin = if path.starts_with("tests/") || path.ends_with("/tests.rs") || path.contains("/tests/") {
        0
    } else {
        text.lines().position(|line| line.trim() == "#[cfg(test)]").unwrap_or(usize::MAX)
    };
    let virtual_time = text.contains("start_paused") || text.contains("time::pause()");
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        let mut complain = |what: &str| complaints.push(format!("line {}: {what}", number + 1));
        for word in ["todo!", "unimplemented!", "#[ignore"] {
            if code.contains(word) {
                complain(&format!("{word} is not a way to leave something undone"));
            }
        }
        let sleeps = code.contains("sleep(") && (!virtual_time || code.contains("thread::sleep("));
        if number >= tests_begin && sleeps && path != "crates/stream-testkit/src/wait.rs" {
            complain(
                "a test waits with stream_testkit::eventually, or sleeps on paused time (start_paused); work_for is for slow handlers",
            );
        }
        // The benchmarks race against it.
        if uses_crate(code, "redis") && !path.starts_with("crates/stream-redis/") && !path.starts_with("bench/") {
            complain("types of the redis crate stay inside of stream-redis");
        }
        if path.starts_with("crates/stream-core/src/") && number < tests_begin {
            for word in ["tokio", "Instant::now", "SystemTime::now", "fastrand", "thread_rng"] {
                if code.contains(word) {
                    complain(&format!("{word}: stream-core has no clock, no randomness and no runtime"));
                }
            }
        }
    }
    complaints
}

/// The names of the functions that are tests.
fn tests_in(text: &str) -> Vec<String> {
    let (mut names, mut is_test) = (Vec::new(), false);
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("async fn ").or_else(|| line.strip_prefix("fn "))
            && std::mem::take(&mut is_test)
        {
            names.extend(rest.split('(').next().map(str::to_owned));
        }
    }
    names
}

/// Names of tests in the documentation that no test has (a star stands for anything), and tests of field cases that are not in
/// the rows of their cases.
fn naming_complaints(text: &str, tests: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in line.split('`').skip(1).step_by(2) {
            let plain = word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_*".contains(c));
            let is_name = plain && (word.matches('_').count() >= 3 || !cases_of(word).is_empty());
            if is_name && !tests.iter().any(|test| fits(word, test)) {
                complaints.push(format!("line {}: no test is called {word}", number + 1));
            }
        }
    }
    for test in tests {
        for case in cases_of(test) {
            let row = text.lines().find(|line| line.starts_with(&format!("| {case} |"))).unwrap_or_default();
            if !row.contains(&format!("`{test}`")) {
                complaints.push(format!("{test} is not in the row of {case}"));
            }
        }
    }
    complaints
}

/// `B34` and `B35` of `b34_b35_the_stream_expires`.
fn cases_of(test: &str) -> Vec<String> {
    let number = |part: &&str| part.len() == 3 && part.starts_with('b') && part[1..].parse::<u8>().is_ok();
    test.split('_').take_while(number).map(str::to_uppercase).collect()
}

fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, behind)) = rest.split_once(part) else { return false };
        rest = behind;
    }
    rest.ends_with(last)
}

/// Public functions, types, traits and constants without a code block that is run; not fields and what is exported anew.
fn example_complaints(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let (mut shown, mut within) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let code = line.trim_start();
        if code == "#[cfg(test)]" {
            break;
        }
        if let Some(doc) = code.strip_prefix("///") {
            let fence = doc.trim_start().strip_prefix("```");
            shown |= !within && matches!(fence, Some("" | "rust"));
            within ^= fence.is_some();
        } else if let Some(item) = code.strip_prefix("pub ").and_then(item) {
            if !shown {
                complaints.push(format!("line {}: {item} has no example that runs", number + 1));
            }
            shown = false;
        } else if !code.starts_with("#[") {
            shown = false;
        }
    }
    complaints
}

/// The kind and the name of what is declared by `code`, if it is something to show.
fn item(code: &str) -> Option<&str> {
    let mut rest = code;
    for word in ["const fn ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).map_or(rest, |after| if word == "const fn " { &rest[6..] } else { after });
    }
    let kinds = ["fn ", "struct ", "enum ", "trait ", "const ", "static ", "type ", "union "];
    let kind = kinds.iter().find(|kind| rest.starts_with(**kind))?;
    let name = rest[kind.len()..].find(|letter: char| !letter.is_alphanumeric() && letter != '_');
    Some(&rest[..name.map_or(rest.len(), |end| kind.len() + end)])
}

/// Whether `code` names something of the crate `name`, as in `redis::Value` but not `stream_redis::Value`.
fn uses_crate(code: &str, name: &str) -> bool {
    let path = format!("{name}::");
    code.match_indices(&path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        before.is_none_or(|letter| !letter.is_alphanumeric() && !matches!(letter, '_' | ':' | '/'))
    })
}

fn machine_complaints(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for folder in ["/work/", "/root/", "/home/"] {
            let absolute = line.match_indices(folder).any(|(at, _)| {
                line[..at]
                    .chars()
                    .next_back()
                    .is_none_or(|letter| !letter.is_alphanumeric() && !"._-$}>".contains(letter))
            });
            if absolute {
                complaints.push(format!("line {}: names a folder of a machine, {folder}", number + 1));
            }
        }
        for host in [
            "crates.io/",
            "index.crates.io",
            "static.crates.io",
            "pypi.org",
            "pythonhosted.org",
            "deb.debian.org",
            "docker.io",
            "npmjs.org",
            "proxy.golang.org",
        ] {
            if line.contains(host) {
                complaints.push(format!("line {}: names the host of a registry, {host}", number + 1));
            }
        }
        if line.contains("../shared") && path != ".ci/run" {
            complaints.push(format!("line {}: names a folder outside of the repository", number + 1));
        }
    }
    complaints
}

fn layer_complaints(path: &str, manifest: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let package = path.trim_end_matches("/Cargo.toml").rsplit('/').next().unwrap_or_default();
    let (allowed, forbidden): (Option<&[&str]>, &[&str]) = match package {
        "stream-core" => (Some(&[]), &["tokio", "fastrand", "rand"]),
        "stream-redis" => (Some(&["stream-core"]), &[]),
        "stream-consumer" | "stream-maint" | "stream-testkit" => (Some(&["stream-core", "stream-redis"]), &[]),
        _ => (None, &[]),
    };
    for name in dependencies(manifest) {
        let ours = name.starts_with("stream-") || name == "streamkeeper";
        if ours && allowed.is_some_and(|allowed| !allowed.contains(&name.as_str())) {
            complaints.push(format!("depends on {name}, which is not below it"));
        }
        if forbidden.contains(&name.as_str()) {
            complaints.push(format!("depends on {name}, and decisions are pure"));
        }
        if name == "redis" && !matches!(package, "stream-redis" | "bench") {
            complaints.push("depends on the redis crate, which stream-redis alone may know".to_owned());
        }
    }
    // The fuzz targets are a workspace of their own, which has no lints to take.
    if !path.starts_with("fuzz/") && !manifest.contains("[lints]\nworkspace = true") {
        complaints.push("does not take the lints of the workspace".to_owned());
    }
    complaints
}

/// The names in `[dependencies]` (also of a target), not those of `[dev-dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut within = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            within = section == "dependencies" || section.ends_with(".dependencies");
            if let Some(name) = section.strip_prefix("dependencies.") {
                names.push(name.to_owned());
            }
        } else if within && !line.is_empty() && !line.starts_with('#') {
            names.extend(line.split(['.', '=', ' ']).next().map(str::to_owned));
        }
    }
    names
}

/// Files of the repository as (path below the root, text); those with one of `extensions`, or all that are text.
fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned();
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository can be read") {
            let path = entry.expect("a folder of the repository can be read").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !matches!(name, "target" | ".git" | ".hypothesis" | "__pycache__" | ".venv") {
                    folders.push(path);
                }
                continue;
            }
            let wanted = extensions.is_empty()
                || path.extension().and_then(|extension| extension.to_str()).is_some_and(|e| extensions.contains(&e));
            if wanted
                && name != ".git"
                && let Ok(text) = fs::read_to_string(&path)
            {
                let below = path.strip_prefix(&root).expect("it was found below the root");
                found.push((below.to_string_lossy().into_owned(), text));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "found no file of the repository");
    found
}

#[test]
fn the_rules_notice_what_they_forbid() {
    #[track_caller]
    fn check(path: &str, text: &str, complaint: &str) {
        let complaints = source_complaints(path, text);
        assert!(complaints.len() == 1 && complaints[0].contains(complaint), "{complaints:?}");
    }
    assert_eq!(source_complaints("crates/a/src/lib.rs", "//! Fine.\nuse stream_redis::Value;\n"), Vec::<String>::new());
    check("crates/a/src/lib.rs", "use x;\n", "does not open");
    check("crates/a/src/lib.rs", &format!("//! Long.\n{}", "\n".repeat(LINES)), "501 lines");
    check("crates/a/src/lib.rs", "//! A.\nfn f() { todo!() }\n", "todo!");
    check("crates/a/src/lib.rs", "//! A.\n#[ignore = \"slow\"]\n", "#[ignore");
    check("crates/a/src/lib.rs", "//! A.\nuse redis::Value;\n", "redis crate");
    check("crates/stream-core/src/a.rs", "//! A.\nlet now = Instant::now();\n", "no clock");
    check("tests/src/a.rs", "//! A.\nsleep(x).await;\n", "eventually");
    check("crates/a/src/a.rs", "//! A.\n#[cfg(test)]\nmod tests { fn f() { sleep(x) } }\n", "eventually");
    check("tests/src/a.rs", "//! A. start_paused\nstd::thread::sleep(x);\n", "eventually");
    let paused = "//! A.\n#[tokio::test(start_paused = true)]\nsleep(x).await;\n";
    assert_eq!(source_complaints("tests/src/a.rs", paused), Vec::<String>::new());

    assert_eq!(machine_complaints("a", "ls /home/me\n").len(), 1);
    assert_eq!(machine_complaints("a", "see https://example.org/home/page and $dir/root/lib\n"), Vec::<String>::new());
    assert_eq!(machine_complaints("a", "index = https://pypi.org/simple\n").len(), 1);
    assert_eq!(machine_complaints("a", "../shared/x\n").len(), 1);
    assert_eq!(machine_complaints(".ci/run", "../shared/x\n"), Vec::<String>::new());

    let lints = "[lints]\nworkspace = true\n";
    let up = format!("{lints}[dependencies]\nstream-redis.workspace = true\n");
    assert_eq!(layer_complaints("crates/stream-core/Cargo.toml", &up).len(), 1);
    assert_eq!(layer_complaints("crates/stream-maint/Cargo.toml", &up), Vec::<String>::new());
    let sideways = format!("{lints}[dependencies.stream-consumer]\npath = \"x\"\n");
    assert_eq!(layer_complaints("crates/stream-maint/Cargo.toml", &sideways).len(), 1);
    let client = format!("{lints}[dependencies]\nredis = {{ version = \"1\" }}\n");
    assert_eq!(layer_complaints("crates/streamkeeper/Cargo.toml", &client).len(), 1);
    let tests_only = format!("{lints}[dev-dependencies]\nstream-redis.workspace = true\n");
    assert_eq!(layer_complaints("crates/stream-core/Cargo.toml", &tests_only), Vec::<String>::new());
}

#[test]
fn an_example_is_missed_where_none_is_run() {
    #[track_caller]
    fn shown(text: &str, complaints: &[&str]) {
        assert_eq!(example_complaints(text), complaints);
    }
    shown("/// Says.\n///\n/// ```\n/// run();\n/// ```\n#[must_use]\npub fn run() {\n", &[]);
    shown("/// Says.\npub async fn run() {\n", &["line 2: fn run has no example that runs"]);
    shown("/// ```text\n/// a\n/// ```\npub struct Run;\n", &["line 4: struct Run has no example that runs"]);
    shown("/// ```\n/// a\n/// ```\nfn a() {}\npub enum B {\n", &["line 5: enum B has no example that runs"]);
    shown(
        "pub const fn a() {}\npub const A: u8 = 1;\n",
        &["line 1: fn a has no example that runs", "line 2: const A has no example that runs"],
    );
    shown("pub(crate) fn a() {}\npub use a::B;\npub mod c;\n    pub field: u8,\n", &[]);
}

#[test]
fn a_name_that_no_test_has_and_a_field_case_in_no_row_are_noticed() {
    #[track_caller]
    fn check(text: &str, complaints: &[&str]) {
        let source = "#[test]\nfn b07_b08_one_stays() {\n#[tokio::test(start_paused = true)]\n/// Why.\nasync fn a_b_c_d() {\nfn help() {\n";
        let tests: BTreeSet<String> = tests_in(source).into_iter().collect();
        assert_eq!(tests.iter().collect::<Vec<_>>(), ["a_b_c_d", "b07_b08_one_stays"]);
        assert_eq!(naming_complaints(text, &tests), complaints);
    }
    let rows = "| B07 | `b07_b08_one_stays` |\n| B08 | `b07_b08_one_stays` |\n";
    check(rows, &[]);
    check(&format!("{rows}`a_b_c_d`, `a_*`, `a_*_c_*`, `b07_*`, `start_paused`, `cargo xtask a_b_c_x`\n"), &[]);
    check(
        &format!("{rows}`a_b_c_x`\n`a_*_c_x`\n`b09_*`"),
        &["line 3: no test is called a_b_c_x", "line 4: no test is called a_*_c_x", "line 5: no test is called b09_*"],
    );
    check("| B07 | `b07_b08_one_stays` |\n", &["b07_b08_one_stays is not in the row of B08"]);
}
