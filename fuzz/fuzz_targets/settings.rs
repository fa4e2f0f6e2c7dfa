//! Settings and URLs: any variables are understood or refused with the name of one of them.
#![no_main]

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use streamkeeper::{Client, Settings};

/// The names that the table of settings tells, without their prefix.
static NAMES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let table = streamkeeper::settings::table();
    let names =
        table.split('`').filter(|word| word.len() > 2 && word.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
    names.map(str::to_owned).collect()
});

const PREFIXES: [&str; 2] = ["ORDERS_", "PREFECT_REDIS_MESSAGING_"];

#[derive(Debug)]
struct Variables {
    prefix: &'static str,
    all: Vec<(String, String)>,
}

impl<'a> Arbitrary<'a> for Variables {
    fn arbitrary(input: &mut Unstructured<'a>) -> Result<Self> {
        let prefix = *input.choose(&PREFIXES)?;
        let mut all = Vec::new();
        for _ in 0..input.int_in_range(0..=6)? {
            let name = if input.ratio(9, 10)? { input.choose(&NAMES)?.clone() } else { input.arbitrary()? };
            let value = match input.int_in_range(0..=3)? {
                0 => input.arbitrary::<u32>()?.to_string(),
                1 => {
                    format!("{}{}", input.arbitrary::<u16>()?, input.choose(&["ms", "s", "m", "h", "MB", "KiB", "%"])?)
                }
                2 => format!("redis://{}", input.arbitrary::<String>()?),
                _ => input.arbitrary()?,
            };
            all.push((format!("{prefix}{name}"), value));
        }
        Ok(Self { prefix, all })
    }
}

fuzz_target!(|variables: Variables| {
    assert!(NAMES.len() > 30, "the table names {} settings", NAMES.len());
    for (_, value) in &variables.all {
        let _ = Client::open(value);
    }
    if let Err(error) = Settings::from_vars(variables.prefix, variables.all.clone()) {
        assert!(error.to_string().contains(variables.prefix), "{error}");
    }
});
