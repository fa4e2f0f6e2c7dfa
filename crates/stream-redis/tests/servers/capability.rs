//! What each server can do, and that asking it changes nothing.

use stream_redis::{Capabilities, Capability, Request};
use stream_testkit::{Flavor, RealServer, ServerOptions, ServerVersion};

use crate::every_server::{connect, key, ok, on_every_server};

/// What the makers say their versions can do.
pub(crate) fn expected(server: &RealServer) -> Capabilities {
    use Capability::{AckDel, AckedTrim, AutoClaim, DeletedIds, Idempotent, Nack, ReadClaim, Scripts};
    let since = |major, minor| server.version() >= ServerVersion::new(major, minor, 0);
    let redis = server.flavor() == Flavor::Redis;
    [
        (AutoClaim, true),
        (Scripts, true),
        (DeletedIds, since(7, 0)),
        (AckDel, redis && since(8, 2)),
        (AckedTrim, redis && since(8, 2)),
        (ReadClaim, redis && since(8, 4)),
        (Idempotent, redis && since(8, 6)),
        (Nack, redis && since(8, 8)),
    ]
    .into_iter()
    .filter_map(|(capability, there)| there.then_some(capability))
    .collect()
}

#[tokio::test]
async fn every_server_tells_what_it_can_do() {
    on_every_server(ServerOptions::new(), async |server| {
        for protocol in ["resp2", "resp3"] {
            let connection = connect(&format!("{}?protocol={protocol}", server.url())).await;
            let dump = async || connection.call(&Request::new("DUMP").key(&key())).await.unwrap();
            for content in ["", "XADD s 5-5 a b", "XADD s 6-6 a b", "SET s x"] {
                if !content.is_empty() {
                    ok(&server, content).await;
                }
                let before = dump().await;
                let found = Capabilities::probe(&*connection, &key()).await.unwrap();
                assert_eq!(found, expected(&server), "{protocol}: {content:?}");
                assert_eq!(dump().await, before, "{content:?}");
            }
            ok(&server, "FLUSHALL").await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_user_who_may_little_is_told_what_is_left() {
    on_every_server(ServerOptions::new(), async |server| {
        let docs = if expected(&server).has(Capability::DeletedIds) { "+command|docs" } else { "+command" };
        ok(&server, &format!("ACL SETUSER reader on >p ~s +xreadgroup +xack +xautoclaim {docs}")).await;
        let connection = connect(&format!("redis://reader:p@{}/", server.address())).await;
        let found = Capabilities::probe(&*connection, &key()).await.unwrap();
        let left = [Capability::AutoClaim, Capability::DeletedIds, Capability::ReadClaim];
        let left: Capabilities = left.into_iter().filter(|left| expected(&server).has(*left)).collect();
        assert_eq!(found, left);
    })
    .await;
}
