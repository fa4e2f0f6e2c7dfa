//! Passwords that change while consumers run.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stream_testkit::{ServerOptions, eventually};
use streamkeeper::{Client, ConnectOptions, Consumer, Context, CredentialProvider, Credentials};
use streamkeeper_tests::{Journal, SOON, on_each_own, start};

/// Tells the password of the moment, and how often it was asked.
#[derive(Debug, Clone, Default)]
struct Rotating(Arc<Mutex<(String, usize)>>);

impl Rotating {
    fn change(&self, password: &str) {
        password.clone_into(&mut self.0.lock().unwrap().0);
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

#[async_trait::async_trait]
impl CredentialProvider for Rotating {
    async fn credentials(&self) -> Result<Credentials, streamkeeper::Error> {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        Ok(Credentials::password(state.0.as_str()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_password_is_asked_for_again() {
    on_each_own(ServerOptions::new(), |server| async move {
        let mut admin = server.connect().await.unwrap();
        admin.command(&["CONFIG", "SET", "requirepass", "first"]).await.unwrap();
        admin.command(&["AUTH", "first"]).await.unwrap();
        let provider = Rotating::default();
        provider.change("first");
        let options = ConnectOptions::tcp("127.0.0.1", server.port()).credentials(provider.clone()).build().unwrap();
        let journal = Journal::default();
        let seen = journal.clone();
        let builder = Consumer::durable(&Client::from_options(options)).stream("orders").group("g");
        let builder = builder.backoff(Duration::from_millis(10), Duration::from_millis(100));
        let consumer = start(builder, move |cx: Context| {
            seen.begin(&cx).end();
            std::future::ready(())
        });
        for (round, password) in ["second", "third"].into_iter().enumerate() {
            admin.command(&["XADD", "orders", "*", "data", "1"]).await.unwrap();
            eventually(SOON, "the entry to be handled", || std::future::ready((journal.ends() > round).then_some(())))
                .await;
            let before = provider.asked();
            admin.command(&["CONFIG", "SET", "requirepass", password]).await.unwrap();
            provider.change(password);
            admin.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await.unwrap();
            eventually(SOON, "the provider to be asked", || {
                std::future::ready((provider.asked() > before).then_some(()))
            })
            .await;
        }
        admin.command(&["XADD", "orders", "*", "data", "1"]).await.unwrap();
        eventually(SOON, "the last entry to be handled", || std::future::ready((journal.ends() == 3).then_some(())))
            .await;
        consumer.stop().await;
    })
    .await;
}
