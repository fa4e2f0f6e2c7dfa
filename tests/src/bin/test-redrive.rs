//! Sends dead letters back in a process of its own, to be killed: `test-redrive URL KEY stream|prefect BATCH`.

use streamkeeper::Client;
use streamkeeper::maint::{DeadLetters, Redrive};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, key, layout, batch] = args.as_slice() else {
        return Err("usage: test-redrive URL KEY stream|prefect BATCH".into());
    };
    let client = Client::open(url)?;
    let mut dead =
        if layout == "prefect" { DeadLetters::prefect(&client, key)? } else { DeadLetters::new(&client, key)? };
    // Slow enough to be killed on the way.
    let redrive = Redrive::new().batch(batch.parse()?).per_second(10_000);
    println!("{:?}", dead.redrive(&redrive).await?);
    Ok(())
}
