"""The live page: all runs of a folder in a browser, and the diagnosis of any log that is pasted into it.

`finding` looks for runs, `states` judges whether they still go on, `board` follows them, `curves` draws the
one that is looked at, `diagnoser` has them diagnosed in another process, `stream` tells a page what is new,
`guard` decides who may ask, and `app` answers. The page itself lies in `assets`; charts and colours are the
report's.
"""
