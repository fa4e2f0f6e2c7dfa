//! The crate stays free of clients, runtimes, clocks and randomness: by what it depends on (here) and by what it calls
//! (`clippy.toml`).

const MANIFEST: &str = include_str!("../Cargo.toml");
const LINTS: &str = include_str!("../clippy.toml");
const ALLOWED: [&str; 5] = ["bytes", "itoa", "serde_json", "smallvec", "thiserror"];

/// Names of the dependencies in the sections that end up in users' builds, however they are written.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut within = false;
    for line in manifest.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            let path: Vec<&str> = section.split('.').collect();
            let at = path.iter().position(|part| matches!(*part, "dependencies" | "build-dependencies"));
            within = at.is_some_and(|at| at + 1 == path.len());
            found.extend(at.and_then(|at| path.get(at + 1)));
        } else if within && !line.is_empty() && !line.starts_with('#') {
            found.extend(line.split(['=', '.', ' ']).next());
        }
    }
    found
}

#[test]
fn only_the_allowed_crates_are_dependencies() {
    let found = dependencies(MANIFEST);
    assert!(found.contains(&"bytes"), "the manifest was not understood: {found:?}");
    for name in found {
        assert!(
            ALLOWED.contains(&name),
            "`{name}` is not allowed here: decisions are pure, see the crate's first lines"
        );
    }
}

#[test]
fn every_way_to_write_a_dependency_is_seen() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\na = \"1\"\nb.workspace = true\n\n# c = \"1\"\n[dependencies.d]\n\
                    version = \"1\"\n[target.'cfg(unix)'.dependencies]\ne = { version = \"1\" }\n[dev-dependencies]\nf = \"1\"\n\
                    [build-dependencies]\ng=\"1\"\n";
    assert_eq!(dependencies(manifest), ["a", "b", "d", "e", "g"]);
}

#[test]
fn the_clocks_are_disallowed() {
    for path in ["std::time::Instant::now", "std::time::SystemTime::now", "std::thread::spawn", "std::fs::File"] {
        assert!(LINTS.contains(path), "clippy.toml no longer disallows {path}");
    }
}
