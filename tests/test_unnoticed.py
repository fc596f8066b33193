"""Computing values is no business of the user's JAX: nothing is logged, counted or reported."""

from on_gpu import on_gpu


def test_jax_logs_and_reports_nothing_while_a_value_is_computed():
    values = on_gpu(
        """
        import logging
        records, events = [], []

        class Keep(logging.Handler):
            def emit(self, record):
                records.append(f"{record.name}: {record.getMessage()}")

        logging.getLogger().addHandler(Keep())
        logging.getLogger().setLevel(logging.DEBUG)
        logging.getLogger("jax").setLevel(logging.DEBUG)
        jax.config.update("jax_log_compiles", True)
        jax.monitoring.register_event_listener(lambda name, **_: events.append(name))
        jax.monitoring.register_event_duration_secs_listener(
            lambda name, _, **__: events.append(name))

        quick = jax.jit(lambda x: x * 2)(jnp.arange(3))
        slow = jax.jit(lambda n: jax.lax.while_loop(lambda v: v < n, lambda v: v + 1, 0))(5)
        logged = len(records), len(events)
        records.clear()
        events.clear()
        values = np.asarray(quick).tolist(), int(np.asarray(slow))
        report(values=values, logged=min(logged) > 0, records=records, events=events)
        """
    )
    assert values == {"values": [[0, 2, 4], 5], "logged": True, "records": [], "events": []}


def test_a_timer_of_kernels_says_why_it_cannot_measure():
    values = on_gpu(
        """
        from jax.experimental.mosaic.gpu import profiler
        try:
            profiler.measure(jax.jit(lambda x: x + 1))(jnp.ones(3))
        except RuntimeError as error:
            report(error=str(error))
        """
    )
    assert "a dry run measures memory and no time" in values["error"]
