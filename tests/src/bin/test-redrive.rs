//! Sends dead letters back in a process of its own, to be killed: `test-redrive URL KEY stream|prefect BATCH [AT_MOST]`.
//!
//! With `AT_MOST` it sends no more than so many back and then waits to be killed: whoever kills it may come as late as
//! they like and never finds it gone.

use streamkeeper::Client;
use streamkeeper::maint::{DeadLetters, Redrive};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ([url, key, layout, batch] | [url, key, layout, batch, _]) = args.as_slice() else {
        return Err("usage: test-redrive URL KEY stream|prefect BATCH [AT_MOST]".into());
    };
    let at_most = args.get(4).map(|at_most| at_most.parse()).transpose()?;
    let client = Client::open(url)?;
    let mut dead =
        if layout == "prefect" { DeadLetters::prefect(&client, key)? } else { DeadLetters::new(&client, key)? };
    // Slow enough to be killed on the way.
    let mut redrive = Redrive::new().batch(batch.parse()?).per_second(10_000);
    if let Some(at_most) = at_most {
        redrive = redrive.at_most(at_most);
    }
    println!("{:?}", dead.redrive(&redrive).await?);
    if at_most.is_some() {
        std::future::pending::<()>().await;
    }
    Ok(())
}
