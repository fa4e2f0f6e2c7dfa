//! Handlers that do not fit do not compile, and the compiler says what a handler is. The texts are those of the pinned
//! toolchain; after a change of it, `TRYBUILD=overwrite cargo test -p stream-consumer --test handlers` writes them anew.

#[test]
fn handlers_that_do_not_fit_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/fits.rs");
    cases.compile_fail("tests/ui/wrong_argument.rs");
    cases.compile_fail("tests/ui/not_async.rs");
    cases.compile_fail("tests/ui/wrong_return.rs");
    cases.compile_fail("tests/ui/not_send.rs");
}
