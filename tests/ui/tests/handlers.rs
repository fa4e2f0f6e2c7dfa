//! Handlers that do not fit do not compile, and the compiler says what a handler is. The texts are those of the pinned
//! toolchain; after a change of it, `TRYBUILD=overwrite cargo test -p streamkeeper-ui-tests` writes them anew.

#[test]
fn handlers_that_do_not_fit_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.pass("cases/fits.rs");
    cases.compile_fail("cases/wrong_argument.rs");
    cases.compile_fail("cases/not_async.rs");
    cases.compile_fail("cases/wrong_return.rs");
    cases.compile_fail("cases/not_send.rs");
}
