"""Windows as Storm fires them, including its surprising cases."""
